"""Generated scripts of MPI calls, executed by a real program under the shim: results are right, iterations are found.

A script is a loop around calls of several kinds, some with a loop inside.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.loops.anchors import MIN_ITERATIONS
from barograph_agent.reduce.ring_set import Progress, RingSet
from helpers import mpi as mpis
from helpers.mpi import Mpi
from helpers.once import built_shim

PROGRAM = Path(__file__).with_name("programs") / "iterations/script.c"
KINDS = ("sendrecv", "halo", "polled", "persistent", "random", "own-allreduce", "bcast", "iallreduce", "flush")
SCRIPTS = 2
"""Of each MPI."""
SITES = 6
MICROSECONDS = 1_000_000
"""Work of a script."""
HASTE = 20.0
"""How much faster time passes for what looks for iterations."""

pytestmark = pytest.mark.process


def calls(rng: np.random.Generator, most: int, first: int) -> list[str]:
    """first: of the sites that are called. Those of an inner loop are others."""
    sites = (first + rng.integers(SITES // 2, size=rng.integers(1, most + 1))).tolist()
    return [f"call {site} {rng.choice(KINDS)}" for site in sites]


def script(seed: int) -> tuple[str, list[int]]:
    """A script, and the loops of it whose passes may be the iterations."""
    rng = np.random.default_rng(seed)
    before, after = calls(rng, 3, 0), calls(rng, 2, 0)
    shape = rng.choice(["flat", "short", "long", "converging"])
    least, most = {"flat": (0, 0), "short": (2, 4), "long": (20, 20), "converging": (8, 40)}[shape]
    inner = [] if shape == "flat" else [f"repeat 1 {least} {most}", "work 100", *calls(rng, 2, SITES // 2), "end"]
    each = 300 + 100 * (least + most) // 2
    passes = max(MICROSECONDS // each, 30)
    whole = [f"repeat 0 {passes} {passes}", "work 300", *before, *inner, *after, "end"]
    lines = ["call 0 barrier", *whole, "call 0 barrier"]
    # An inner loop with less than half of the time is part of the outer one, and calls wait for other programs.
    return "\n".join(lines) + "\n", [0, 1] if most >= MIN_ITERATIONS else [0]


def watched(mpi: Mpi, program: list[str | Path], folder: Path, library: Path) -> tuple[int, int, str]:
    """Intervals seen and lost, and what the program has printed."""
    (rings := folder / "rings").mkdir()
    env = {"LD_PRELOAD": str(library), "BAROGRAPH_RING_DIR": str(rings), "BAROGRAPH_RANKS": "all"}
    found, output = RingSet(rings, Progress()), folder / "output"
    with output.open("w") as file:
        around = {**os.environ, **mpi.environment(), **env}
        process = subprocess.Popen(mpi.command(2, program), env=around, stdout=file)
        while (status := process.poll()) is None:
            found.find()
            for _ in found.read(final=False, now=HASTE * time.monotonic()):
                pass
            found.release()
            time.sleep(0.02)
    assert status == 0
    for _ in found.read(final=True, now=HASTE * time.monotonic()):
        pass
    seen, lost = found.counted()
    found.close()
    return seen, lost, output.read_text()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_shim(tmp_path_factory)


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_scripts_do_what_they_say_and_their_iterations_are_found(name: str, tmp_path: Path, library: Path) -> None:
    mpi = mpis.find(name)
    program = mpi.compile(PROGRAM, tmp_path / "program")
    missed = []
    for seed in range(SCRIPTS):
        (folder := tmp_path / str(seed)).mkdir()
        text, likely = script(seed)
        (folder / "script").write_text(text)
        seen, lost, printed = watched(mpi, [program, folder / "script"], folder, library)
        assert "bad=0" in printed
        assert lost == 0
        passes = dict(line.split()[1:] for line in printed.splitlines() if line.startswith("loop"))
        counts = [int(passes[str(loop)]) for loop in likely]
        # Where other programs take the cores, time may decide for one loop first, and then for the other.
        if not 0.98 * min(counts) - 8 <= seen <= 1.02 * max(counts) + 8:
            missed.append((seed, seen, counts, text))
    assert len(missed) <= 0.05 * SCRIPTS, missed
