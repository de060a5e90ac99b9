"""What an idle service costs, and how soon a row that is appended reaches the metrics of the alerts."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np

from barograph_agent.protocol.tables import TABLES
from helpers.log import Producer, blocks, wait_until
from helpers.up import Up

DAEMONS = ("collector", "modeler", "alerts", "page")
SETTLE_SECONDS = 10.0
IDLE_SECONDS = 60.0
CORE_SHARE = 0.005
"""Of all processes of an idle service together."""
JOBS = 100
MEDIAN_SECONDS, MOST_SECONDS = 0.5, 2.0


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
