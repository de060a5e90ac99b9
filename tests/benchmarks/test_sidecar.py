"""Processor time and memory of a sidecar of 64 ranks that synchronize 1,000 times a second, and what counting costs.

The latter is the share that the passes of loops (`reduce/passes.py`) take of all reading of one rank.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.lab.bench.measured_collector import Usage
from barograph_agent.job.identity import Job
from barograph_agent.reduce.passes import Passes
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.sidecar.plan import PLAN, RunPlan, myself, save
from helpers.log import wait_until
from helpers.rings import BatchedShim
from helpers.service import Service

RANKS = 64
RATE = 1000
SECONDS = 20.0
BATCH = 64  # a divisor of the ring's capacity: no batch wraps around
LOOK_SECONDS = 0.5
GOAL_SHARE = 0.03
GOAL_COUNTING = 0.25
GOAL_BYTES = 60 * 2**20


@pytest.mark.timeout(600)
def test_a_sidecar_beside_64_ranks(tmp_path: Path) -> None:
    directory, rings = tmp_path / "run", tmp_path / "ring"
    directory.mkdir()
    rings.mkdir()
    ranks = []
    for rank in range(RANKS):
        ranks.append(shim := BatchedShim(rings / f"rank-{rank}.ring", capacity=65536))
        shim.set(rank=rank, size=RANKS)
        for offset in range(6):
            shim.site(16 * offset + 1)
    with Service(tmp_path) as service:
        job = Job("lab", "bench", 0, "0", "ada", "n1", "bench", {})
        save(directory, PLAN, RunPlan(job, "lab/bench/1", service.endpoint, str(rings), 0.0, *myself(), 0.0, 2**28))
        sidecar = subprocess.Popen([sys.executable, "-P", "-m", "barograph_agent.sidecar.main", str(directory)])
        try:
            index = 0

            def play(seconds: float) -> None:
                nonlocal index
                began, first = time.monotonic(), index
                while (due := time.monotonic() - began) < seconds:
                    while index - first < due * RATE:
                        ends = (index + 1 + np.arange(BATCH)) * (10**9 // RATE)
                        sites = (index + np.arange(BATCH)) % 6 + 1
                        for shim in ranks:
                            shim.put_many(index, ends, sites)
                        index += BATCH
                    time.sleep(0.01)

            play(3.0)  # start-up is not measured
            before, at = Usage.of(sidecar.pid), time.monotonic()
            play(SECONDS)
            used = Usage.of(sidecar.pid) - before
            share, memory = used.cpu_seconds / (time.monotonic() - at), used.resident_bytes
            wait_until(lambda: ranks[0].get("tail") > 0.5 * index, "the sidecar keeps up")
        finally:
            sidecar.kill()
            sidecar.wait()
    dropped = sum(shim.get("dropped") for shim in ranks)
    print(f"\n{RANKS} ranks x {RATE}/s: {share:.2%} of one core, {memory / 2**20:.0f} MB resident, {dropped} dropped")
    assert dropped == 0
    assert share < GOAL_SHARE
    assert memory < GOAL_BYTES


def test_counting_passes_of_loops_takes_a_small_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = 0.0
    add = Passes.add

    def timed(self: Passes, *args: Any) -> None:
        nonlocal counting
        began = time.process_time()
        add(self, *args)
        counting += time.process_time() - began

    monkeypatch.setattr(Passes, "add", timed)
    shim = BatchedShim(tmp_path / "rank-0.1.ring", capacity=65536)
    shim.set(rank=0, size=1)
    for offset in range(6):
        shim.site(16 * offset + 1)
    rings = RingSet(tmp_path, Progress())
    looks, batches = 200, int(RATE * LOOK_SECONDS) // BATCH
    index, began = 0, time.process_time()
    writing = 0.0
    for look in range(1, looks + 1):
        at = time.process_time()
        for _ in range(batches):
            shim.put_many(index, (index + 1 + np.arange(BATCH)) * (10**9 // RATE), (index + np.arange(BATCH)) % 6 + 1)
            index += BATCH
        writing += time.process_time() - at
        rings.find()
        list(rings.read(final=False, now=look * LOOK_SECONDS))
        rings.release()
    total = time.process_time() - began - writing
    assert rings.counted() == (index, 0)
    rings.close()
    share, each = counting / total, counting / index * 1e9
    core = total / (looks * LOOK_SECONDS)
    print(f"\n1 rank x {RATE}/s: {core:.2%} of a core, {share:.1%} of it for passes, {each:.0f} ns for an interval")
    assert share < GOAL_COUNTING
