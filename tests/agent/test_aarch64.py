"""The shim on AArch64: built by a cross compiler, under QEMU's user mode, with MPIs for that machine.

Those are MPICH's wheel and Debian's two. Two ranks are started by the launcher of this machine, each under QEMU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.ring.reader import Ring
from helpers.mpi import REPOSITORY, missing

from .test_interception import BINDINGS, CALLS, ENDS, PROGRAMS, ROUNDS, check_page, found_in

pytestmark = pytest.mark.integration

WHEEL, DEBIAN = REPOSITORY / ".venv-aarch64", REPOSITORY / ".venv-aarch64/debian"
LIBRARIES = DEBIAN / "usr/lib/aarch64-linux-gnu"
QEMU = "qemu-aarch64-static"
SYSTEM = Path("/usr/aarch64-linux-gnu")
COMPILER = [sys.executable, "-m", "ziglang", "cc", "-target"]
FORTRAN = "aarch64-linux-gnu-gfortran"
LAUNCHER = "mpirun.openmpi"
SHIM_TARGET, PROGRAM_TARGET = "aarch64-linux-gnu.2.17", "aarch64-linux-gnu.2.28"


@dataclass(frozen=True)
class ForeignMpi:
    """An MPI for AArch64."""

    root: Path
    """Of the files that its programs see before those of this machine."""
    headers: Sequence[Path]
    libraries: Sequence[Path]
    name: str = "mpi"
    """Of its library."""
    fortran: Sequence[str] = ()
    """What Fortran programs are linked to before that."""

    @property
    def words(self) -> list[str]:
        return [*(f"-I{path}" for path in self.headers), *(f"-L{path}" for path in self.libraries)]

    def compile(self, source: str, output: Path, *flags: str) -> Path:
        # The compiler ignores attributes that only GCC has.
        command = [
            *COMPILER,
            PROGRAM_TARGET,
            PROGRAMS / source,
            "-w",
            "-O1",
            "-g",
            *flags,
            *self.words,
            f"-l{self.name}",
        ]
        subprocess.run([*command, "-Wl,--allow-shlib-undefined", "-o", output], check=True, timeout=250)
        return output

    def compile_fortran(self, output: Path, binding: int) -> Path:
        if shutil.which(FORTRAN) is None:
            missing(f"no {FORTRAN}: Debian's gfortran-aarch64-linux-gnu")
        command = [
            FORTRAN,
            PROGRAMS / "collectives.F90",
            "-O1",
            "-g",
            "-fallow-argument-mismatch",
            f"-DBINDING={binding}",
        ]
        linked = [f"-l{name}" for name in (*self.fortran, self.name)]
        subprocess.run(
            [*command, *self.words, *linked, "-Wl,--allow-shlib-undefined", "-o", output], check=True, timeout=250
        )
        return output

    def command(self, library: Path, rings: Path, program: Sequence[str | Path]) -> list[str | Path]:
        """The command that runs a program under QEMU."""
        variables = {
            "LD_LIBRARY_PATH": ":".join(map(str, (self.root / "lib", *self.libraries))),
            "LD_PRELOAD": str(library),
            "BAROGRAPH_RING_DIR": str(rings),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        options = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        return [QEMU, "-L", self.root, *options, *program]


MPIS = {
    "aarch64-mpich": ForeignMpi(SYSTEM, [WHEEL / "include"], [WHEEL / "lib"]),
    "aarch64-debian-mpich": ForeignMpi(
        DEBIAN,
        [LIBRARIES / "mpich/include", LIBRARIES / "fortran/gfortran-mod-15/mpich"],
        [LIBRARIES],
        "mpich",
        ["mpichfort"],
    ),
    "aarch64-debian-openmpi": ForeignMpi(
        DEBIAN,
        [LIBRARIES / "openmpi/include", LIBRARIES / "fortran/gfortran-mod-15/openmpi"],
        [LIBRARIES / "openmpi/lib", LIBRARIES],
        fortran=["mpi_usempif08", "mpi_usempi_ignore_tkr", "mpi_mpifh"],
    ),
}
CASES = [
    (language, name) for name, mpi in MPIS.items() for language in ("C", *BINDINGS) if language == "C" or mpi.fortran
]


def find(name: str) -> ForeignMpi:
    mpi = MPIS[name]
    for needed, how in (
        (mpi.libraries[0] / f"lib{mpi.name}.so", "make .venv-aarch64/.done"),
        (SYSTEM / "lib/libc.so.6", "Debian's libc6-arm64-cross"),
    ):
        if not needed.exists():
            missing(f"{needed} does not exist: {how}")
    if shutil.which(QEMU) is None:
        missing(f"{QEMU} is not installed: Debian's qemu-user-static")
    return mpi


@pytest.fixture(scope="module")
def mpi() -> ForeignMpi:
    return find("aarch64-mpich")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aarch64")


def shim(folder: Path, *flags: str) -> Path:
    output = folder / "libbarograph.so"
    compiler = " ".join([*COMPILER, SHIM_TARGET, *flags])
    command = [sys.executable, REPOSITORY / "agent/shim/build.py", output]
    subprocess.run(command, env=os.environ | {"CC": compiler}, check=True, timeout=250)
    return output


def run(
    mpi: ForeignMpi, library: Path, rings: Path, command: list[str | Path], launcher: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    rings.mkdir()
    words = [*launcher, *mpi.command(library, rings, command)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=250)


def only_ring(rings: Path) -> Ring:
    (path,) = rings.glob("*.ring")
    return Ring(path)


@pytest.fixture(scope="module")
def library(folder: Path) -> Path:
    # The kernel's clock source is named by a file, which says here what a machine of this kind has.
    (named := folder / "clock_source").write_text("arch_sys_counter\n")
    return shim(folder, f"-DCLOCKSOURCE='\"{named}\"'")


@pytest.mark.parametrize(("language", "name"), CASES)
def test_every_collective_is_recorded_for_each_language_mpi_and_kind_of_end(
    language: str, name: str, library: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mpi, output = find(name), tmp_path / "program"
    if language == "C":
        mpi.compile("collectives.c", output)
    else:
        mpi.compile_fortran(output, BINDINGS[language])
    cells = []
    for end in ENDS:
        done = run(mpi, library, tmp_path / end, [output, str(ROUNDS), end])
        assert "bad=0" in done.stdout, done.stderr
        (path,) = (tmp_path / end).iterdir()
        cells.append(found_in(path, language, end))
    check_page(language, name, cells, writes=request.config.getoption("--write"))


def test_two_ranks_of_open_mpi_have_the_same_collectives(library: Path, tmp_path: Path) -> None:
    mpi = find("aarch64-debian-openmpi")
    if shutil.which(LAUNCHER) is None:
        missing(f"{LAUNCHER} is not installed: Debian's openmpi-bin")
    # For the launcher, which is a program of this machine.
    permitted = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "BAROGRAPH_RANKS=all"]
    launcher = [*permitted, LAUNCHER, "--oversubscribe", "--bind-to", "none", "-n", "2"]
    program = mpi.compile("collectives.c", tmp_path / "program")
    done = run(mpi, library, tmp_path / "rings", [program, str(ROUNDS), "finalize"], launcher)
    assert done.stdout.count("bad=0") == 2, done.stderr
    found = []
    for path in sorted((tmp_path / "rings").iterdir()):
        with Ring(path) as ring:
            records = ring.records(0, ring.head)
            assert (records["enter_ns"] <= records["exit_ns"]).all()
            assert (np.diff(records["exit_ns"].astype(np.int64)) >= 0).all()
            found.append((ring.rank, ring.size, records["op"].tolist()))
    assert [(rank, size, len(kinds)) for rank, size, kinds in found] == [(0, 2, CALLS), (1, 2, CALLS)]
    assert found[0][2] == found[1][2]


def test_times_follow_from_the_counter(mpi: ForeignMpi, library: Path, folder: Path) -> None:
    began = time.monotonic()
    done = run(
        mpi, library, folder / "counter", [mpi.compile("paced.c", folder / "paced"), "100", "5000", folder / "progress"]
    )
    passed = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    with only_ring(folder / "counter") as ring:
        assert ring.clock == "CLOCK_MONOTONIC by the time stamp counter"
        ends = ring.records(0, ring.head)["exit_ns"].astype(np.int64)
        assert len(ends) >= 100
        # At least what it sleeps, and at most what passed meanwhile.
        assert 0.99 * 5e6 * (len(ends) - 1) <= ends[-1] - ends[0] <= 1e9 * passed


@pytest.mark.parametrize(
    ("flags", "frames"), [(("-O2",), 3), (("-O2", "-fomit-frame-pointer"), 1)], ids=["kept", "omitted"]
)
def test_a_site_is_the_call_path_where_frame_pointers_are_kept(
    mpi: ForeignMpi, folder: Path, flags: tuple[str, ...], frames: int, tmp_path: Path
) -> None:
    # This shim unwinds at every collective, and aborts if the path differs from the one it composed.
    verifying = folder / "verifying" / "libbarograph.so"
    if not verifying.exists():
        verifying.parent.mkdir()
        shim(verifying.parent, "-DBAROGRAPH_VERIFY_PATHS")
    done = run(mpi, verifying, tmp_path / "rings", [mpi.compile("paths.c", tmp_path / "paths", *flags), "50"])
    assert (done.returncode, done.stderr) == (0, "")
    with only_ring(tmp_path / "rings") as ring:
        sites = [ring.site(site) for site in ring.records(0, ring.head)["site"].tolist()]
    assert len(sites) == 600
    for at in range(6):
        (path,) = set(sites[12 + at :: 12])
        assert len(path.split(" < ")) == frames
