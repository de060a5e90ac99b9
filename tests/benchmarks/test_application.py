"""The slowdown of LAMMPS under the shim: paired runs in random order, and the prediction from the cost of a collective.

One rank, because two ranks on a busy machine wait for each other's cores. Measures processor time, which other programs
affect less, and wall time. Neither is asserted: the printed interval is the resolution of these runs.
`make bench PYTEST="-k slower"`; $BAROGRAPH_TEST_PAIRS sets the number of pairs, 20 by default. Another program, its
command in $BAROGRAPH_TEST_APPLICATION, is measured likewise.
"""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from barograph_agent.ring.reader import Ring
from helpers import mpi as mpis
from helpers.lammps import fluid


def seconds(command: list[str], env: dict[str, str], folder: Path) -> tuple[float, float]:
    """Processor time and wall time of one run in the folder."""
    began = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **env}, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, time.monotonic() - began


def median_interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """The distribution-free confidence interval of the median: order statistics by the binomial distribution."""
    ordered = np.sort(values)
    rank = max(int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5)), 1)
    return float(ordered[rank - 1]), float(ordered[-rank])


def test_the_interval_of_the_median_has_its_confidence() -> None:
    random_ = np.random.default_rng(7)
    inside = [low <= 0 <= high for low, high in (median_interval(list(random_.normal(size=20))) for _ in range(2000))]
    assert 0.94 < np.mean(inside) < 0.99


@pytest.mark.parametrize("name", ["mpich"])
def test_how_much_slower_lammps_is(name: str, tmp_path: Path) -> None:
    lammps, environment = mpis.find(name).lammps()
    (tmp_path / "in.lj").write_text(fluid(6, 3000))
    command = [str(lammps), "-in", str(tmp_path / "in.lj"), "-log", "none"]
    assert compare("LAMMPS", command, environment, tmp_path) > 3000


def test_how_much_slower_another_application_is(tmp_path: Path) -> None:
    words = shlex.split(os.environ.get("BAROGRAPH_TEST_APPLICATION", ""))
    if not words:
        pytest.skip("BAROGRAPH_TEST_APPLICATION is not set, expected the command of an MPI program")
    assert compare(Path(words[0]).name, words, {}, tmp_path) > 0


def compare(title: str, command: list[str], environment: dict[str, str], folder: Path) -> int:
    """Runs the command in pairs, with and without the shim, and prints the slowdown; returns its collectives."""
    shim = folder / "libbarograph.so"
    subprocess.run([sys.executable, mpis.REPOSITORY / "agent/shim/build.py", shim], check=True)
    order = random.Random(1)
    pairs = int(os.environ.get("BAROGRAPH_TEST_PAIRS", "20"))
    ratios: dict[str, list[float]] = {"processor": [], "wall": []}
    alone: list[float] = []
    collectives = 0
    for _ in range(pairs):
        taken: dict[bool, tuple[float, float]] = {}
        for watched in order.sample([True, False], 2):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as rings:
                env = {"LD_PRELOAD": str(shim), "BAROGRAPH_RING_DIR": rings} if watched else {}
                taken[watched] = seconds(command, {**environment, **env}, folder)
                for path in Path(rings).glob("*.ring"):
                    with Ring(path) as ring:
                        collectives = ring.head
        alone.append(taken[False][0])
        for at, times in enumerate(ratios.values()):
            times.append(taken[True][at] / taken[False][at])
    print(f"\n\n{title}, 1 rank, {np.median(alone):.2f} s of processor time, {collectives} collectives, {pairs} pairs")
    for clock, times in ratios.items():
        low, high = median_interval(times)
        print(f"{clock:10} slowdown {np.median(times) - 1:+.4f}, 95 % confidence {low - 1:+.4f} to {high - 1:+.4f}")
    predicted = collectives * 25e-9 / np.median(alone)
    print(f"at 25 ns a collective it would be {predicted:+.7f}")
    return collectives
