"""The shim on AArch64: built by a cross compiler, under QEMU's user mode, with MPICH's wheel for that machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.ring.reader import Ring
from helpers.mpi import REPOSITORY, missing

from .test_interception import CALLS, ENDS, PROGRAMS, ROUNDS, STATUSES

pytestmark = pytest.mark.integration

MPI = REPOSITORY / ".venv-aarch64"
QEMU = "qemu-aarch64-static"
SYSTEM = Path("/usr/aarch64-linux-gnu")
COMPILER = [sys.executable, "-m", "ziglang", "cc", "-target"]
SHIM_TARGET, PROGRAM_TARGET = "aarch64-linux-gnu.2.17", "aarch64-linux-gnu.2.28"


@pytest.fixture(scope="module")
def mpi() -> Path:
    for needed, how in (
        (MPI / "lib/libmpi.so", "make .venv-aarch64/.done"),
        (SYSTEM / "lib/libc.so.6", "Debian's libc6-arm64-cross"),
    ):
        if not needed.exists():
            missing(f"{needed} does not exist: {how}")
    if shutil.which(QEMU) is None:
        missing(f"{QEMU} is not installed: Debian's qemu-user-static")
    return MPI


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aarch64")


def shim(folder: Path, *flags: str) -> Path:
    output = folder / "libbarograph.so"
    compiler = " ".join([*COMPILER, SHIM_TARGET, *flags])
    command = [sys.executable, REPOSITORY / "agent/shim/build.py", output]
    subprocess.run(command, env=os.environ | {"CC": compiler}, check=True, timeout=250)
    return output


def program(mpi: Path, folder: Path, source: str, *flags: str) -> Path:
    output = folder / source.partition(".")[0]
    # The compiler ignores attributes that only GCC has.
    options = ["-w", "-O1", "-g", *flags, f"-I{mpi}/include", f"-L{mpi}/lib", "-lmpi", "-Wl,--allow-shlib-undefined"]
    subprocess.run([*COMPILER, PROGRAM_TARGET, PROGRAMS / source, *options, "-o", output], check=True, timeout=250)
    return output


def run(mpi: Path, library: Path, rings: Path, command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    rings.mkdir()
    variables = {
        "LD_LIBRARY_PATH": f"{SYSTEM}/lib:{mpi}/lib",
        "LD_PRELOAD": str(library),
        "BAROGRAPH_RING_DIR": str(rings),
    }
    options = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
    return subprocess.run(
        [QEMU, "-L", SYSTEM, *options, *command], capture_output=True, text=True, check=False, timeout=250
    )


def only_ring(rings: Path) -> Ring:
    (path,) = rings.glob("*.ring")
    return Ring(path)


@pytest.fixture(scope="module")
def library(mpi: Path, folder: Path) -> Path:
    # The kernel's clock source is named by a file, which says here what a machine of this kind has.
    (named := folder / "clock_source").write_text("arch_sys_counter\n")
    return shim(folder, f"-DCLOCKSOURCE='\"{named}\"'")


def test_every_collective_is_recorded_for_each_kind_of_end(mpi: Path, library: Path, folder: Path) -> None:
    collectives = program(mpi, folder, "collectives.c")
    for end in ENDS:
        done = run(mpi, library, folder / end, [collectives, str(ROUNDS), end])
        assert "bad=0" in done.stdout, done.stderr
        with only_ring(folder / end) as ring:
            assert (ring.head, ring.dropped, ring.finalized) == (CALLS, 0, end == "finalize")
            assert end == "MPI_Abort" or ring.exit_status == STATUSES.get(end)
            records = ring.records(0, ring.head)
            assert (records["enter_ns"] <= records["exit_ns"]).all()
            assert (np.diff(records["exit_ns"].astype(np.int64)) >= 0).all()


def test_times_follow_from_the_counter(mpi: Path, library: Path, folder: Path) -> None:
    began = time.monotonic()
    done = run(mpi, library, folder / "counter", [program(mpi, folder, "paced.c"), "100", "5000", folder / "progress"])
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
    mpi: Path, folder: Path, flags: tuple[str, ...], frames: int, tmp_path: Path
) -> None:
    # This shim unwinds at every collective, and aborts if the path differs from the one it composed.
    verifying = folder / "verifying" / "libbarograph.so"
    if not verifying.exists():
        verifying.parent.mkdir()
        shim(verifying.parent, "-DBAROGRAPH_VERIFY_PATHS")
    done = run(mpi, verifying, tmp_path / "rings", [program(mpi, tmp_path, "paths.c", *flags), "50"])
    assert (done.returncode, done.stderr) == (0, "")
    with only_ring(tmp_path / "rings") as ring:
        sites = [ring.site(site) for site in ring.records(0, ring.head)["site"].tolist()]
    assert len(sites) == 600
    for at in range(6):
        (path,) = set(sites[12 + at :: 12])
        assert len(path.split(" < ")) == frames
