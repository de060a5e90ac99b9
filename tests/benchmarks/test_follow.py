"""What an idle service costs, and one with running jobs, and how soon a row reaches the metrics of the alerts."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.job.identity import Job
from barograph_agent.protocol.tables import ROWS_PER_SECOND, TABLES
from barograph_agent.sidecar.plan import PLAN, RunPlan, myself, save
from helpers.log import Producer, blocks, wait_until
from helpers.rings import BatchedShim
from helpers.up import Up

DAEMONS = ("collector", "modeler", "alerts", "page")
SETTLE_SECONDS = 10.0
IDLE_SECONDS = 60.0
CORE_SHARE = 0.005
"""Of all processes of an idle service together."""
JOBS = 100
MEDIAN_SECONDS, MOST_SECONDS = 0.5, 2.0
RATE, BATCH = 512, 64
"""Intervals a second of a running job: twice as many as its budget has rows."""
WARM_SECONDS, RUN_SECONDS = 70.0, 60.0
"""By then the budget of the start is spent, and the modeler learns."""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_idle_service_takes_less_than_half_a_percent_of_a_core(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        time.sleep(SETTLE_SECONDS)
        pids = {"up": up.process.pid, **{daemon: up.pid(daemon) for daemon in DAEMONS}}
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(IDLE_SECONDS)
        shares = {name: (cpu_seconds(pid) - before[name]) / IDLE_SECONDS for name, pid in pids.items()}
    print("\n\nidle, share of a core\n" + "-" * 21)
    for name, share in {**shares, "together": sum(shares.values())}.items():
        print(f"{name:<12}{share:8.2%}")
    assert sum(shares.values()) < CORE_SHARE


def test_a_row_reaches_the_metrics_of_the_alerts(tmp_path: Path) -> None:
    rng = random.Random(1)
    found = []
    with Up(tmp_path) as up, Producer(up.endpoint, "bench") as producer:
        producer.hello()
        for number in range(1, JOBS + 1):
            time.sleep(rng.uniform(0.2, 1.2))  # at another moment of every cycle there is
            job = f"bench/{number}.0.0"
            row = {name: "x" if kind.is_text else 1 for name, kind in TABLES["jobs"].columns.items()} | {"job": job}
            began = time.perf_counter()
            producer.append(2 * number - 1, "jobs", 1, row)
            producer.append(2 * number, "blocks", 1, blocks(1, job=job))
            wait_until(lambda job=job: f'job="{job}"' in up.metrics("alerts"), "the job is shown")
            found.append(time.perf_counter() - began)
    median, most = np.percentile(found, [50, 99])
    print(f"\n\nfrom append to the metrics of the alerts: p50 {median:.3f} s, p99 {most:.3f} s")
    assert median <= MEDIAN_SECONDS
    assert most <= MOST_SECONDS


@pytest.mark.parametrize("jobs", [1, 8])
def test_what_running_jobs_cost(jobs: int, tmp_path: Path) -> None:
    ranks: list[BatchedShim] = []
    sidecars: list[subprocess.Popen[bytes]] = []
    with Up(tmp_path) as up:
        for number in range(jobs):
            rings, directory = tmp_path / f"rings-{number}", tmp_path / f"run-{number}"
            for folder in (rings, directory):
                folder.mkdir()
            for rank in range(2):
                ranks.append(shim := BatchedShim(rings / f"rank-{rank}.ring", capacity=65536))
                shim.set(rank=rank, size=2)
                shim.site(1)
            job = Job("lab", str(number), 0, "0", "ada", "n1", "bench", {})
            plan = RunPlan(job, f"lab/{number}/1", up.endpoint, str(rings), 0.0, *myself(), 0.0, 2**28)
            save(directory, PLAN, plan)
            command = [sys.executable, "-P", "-m", "barograph_agent.sidecar.main", str(directory)]
            sidecars.append(subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}))
        pids = {daemon: [up.pid(daemon)] for daemon in DAEMONS} | {"sidecar": [one.pid for one in sidecars]}
        try:
            index = play(ranks, 0, WARM_SECONDS)
            before = {name: sum(map(cpu_seconds, those)) for name, those in pids.items()}
            rows = stored_rows(up)
            play(ranks, index, RUN_SECONDS)
            used = {name: sum(map(cpu_seconds, those)) - before[name] for name, those in pids.items()}
            rows = (stored_rows(up) - rows) / RUN_SECONDS / jobs
        finally:
            for one in sidecars:
                one.kill()
                one.wait()
    print(f"\n\n{jobs} running jobs, {rows:.0f} rows a second each: share of a core for each job\n" + "-" * 71)
    for name, seconds in {**used, "daemons": sum(used[daemon] for daemon in DAEMONS)}.items():
        print(f"{name:<12}{seconds / RUN_SECONDS / jobs:8.2%}")
    assert rows > 0.9 * ROWS_PER_SECOND


def play(ranks: list[BatchedShim], index: int, seconds: float) -> int:
    """Let all ranks write RATE intervals a second, from this one on; returns the next one."""
    began, first = time.monotonic(), index
    while (due := time.monotonic() - began) < seconds:
        while index - first < due * RATE:
            ends = (index + 1 + np.arange(BATCH)) * (10**9 // RATE)
            for shim in ranks:
                shim.put_many(index, ends, np.ones(BATCH, np.int64))
            index += BATCH
        time.sleep(0.05)
    return index


def stored_rows(up: Up) -> float:
    """Rows of `blocks` in the database."""
    return float(up.wait_for_metric("collector", r'barograph_collector_rows_total\{table="blocks"\}').split()[-1])
