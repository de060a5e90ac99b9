"""Processor time and memory of a sidecar of 64 ranks that synchronize 1,000 times a second."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from barograph.lab.bench.measured_collector import Usage
from barograph_agent.job.identity import Job
from barograph_agent.sidecar.plan import PLAN, RunPlan, myself, save
from helpers.log import wait_until
from helpers.rings import BatchedShim
from helpers.service import Service

RANKS = 64
RATE = 1000
SECONDS = 20.0
BATCH = 64  # a divisor of the ring's capacity: no batch wraps around
GOAL_SHARE = 0.03
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
