"""A log of simulated runs with intervals, at several scales: what a report on an application and a job can show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from barograph_agent.reduce import intervals
from barograph_collector.client.log_reader import LogReader
from helpers.log import Producer, wait_until
from helpers.up import Up

APP: Final = "solver"
SCALES: Final = (4, 8, 16, 32)
REPEATS: Final = 6
ROUNDS: Final = 4
"""Of REPEATS; what comes after is predicted and judged by what has been learned of them."""
INTERVALS: Final = 400
_RELAX, _NORM = "Grid<double>::relax()+0x5c < main+0x1f", "norm(Field const&)+0x2e < main+0x40"
SITES: Final = {
    intervals.class_id(_RELAX, _NORM): (_RELAX, _NORM, "Allreduce"),
    intervals.class_id(_NORM, _RELAX): (_NORM, _RELAX, "Barrier"),
}
LENGTH: Final = 16
SLOW: Final = "n3"
"""The node that the last job waits for from its middle on."""


class Runs:
    """Appends runs, one after the other in time. Seeded."""

    def __init__(self, producer: Producer, seed: int = 3, start: float = 1_767_225_600.0) -> None:
        """start: Unix seconds of the first run."""
        self._producer = producer
        self._seq = 0
        self._made = 0
        self._rng = np.random.default_rng(seed)
        self.now = start

    def run(self, ranks: int, started: Callable[[str], None], *, slow: bool = False, status: int = 0) -> str:
        """One run on four nodes; `slow`: SLOW takes 1.6 times as long from the middle on. Returns the job's name.

        started: called with that name when the log has the job and nothing else of it.
        """
        self._made += 1
        job, rng = f"lab/{self._made}.0.0", self._rng
        self._append("jobs", 1, {
            "job": job, "cluster": "lab", "workload": f"lab/{APP}@{ranks}x4", "app": APP, "user": "alice",
            "params": json.dumps({"mesh": "fine"}), "ranks": ranks, "nodes": 4, "host": "n1", "started_at": self.now,
            "scheduler": "none", "account": "", "unique_id": "",
        })  # fmt: skip
        for number, (before, at, operation) in SITES.items():
            site = {"job": job, "class_id": number, "from_site": before, "to_site": at, "operation": operation}
            self._append("sites", 1, site)
        self._producer.receive_ack(self._seq)
        started(job)
        pace = rng.lognormal(0, 0.01)
        work = pace * (0.02 + 0.6 / ranks) * (1 + 0.02 * rng.gumbel(size=INTERVALS))
        check = pace * 0.004 * np.where(rng.random(INTERVALS) < 0.2, 2.5, 1.0) * rng.lognormal(0, 0.05, INTERVALS)
        if slow:
            work[INTERVALS // 2 :] *= 1.6
        seconds = np.column_stack([work, check]).ravel()
        ended = self.now + 1.0 + np.cumsum(seconds)
        self._nodes(job, ranks, seconds, ended, slow=slow)
        self._append("blocks", seconds.size, {
            "job": job, "world": 0, "class_id": np.tile(np.array(list(SITES), dtype=np.uint64), INTERVALS),
            "first_index": np.arange(seconds.size), "count": 1, "sum_seconds": seconds, "sum_squares": seconds**2,
            "sum_cubes": seconds**3, "min_seconds": seconds, "max_seconds": seconds, "ended_at": ended,
        })  # fmt: skip
        runtime = float(ended[-1]) - self.now + 1.0
        self._append("runs", 1, {
            "job": job, "ended_at": self.now + runtime, "runtime_seconds": runtime, "exit_status": status,
            "intervals": seconds.size, "dropped": 0, "imported": 0,
        })  # fmt: skip
        self._producer.receive_ack(self._seq)
        self.now += 3600.0
        return job

    def _nodes(self, job: str, ranks: int, seconds: Any, ended: Any, *, slow: bool) -> None:
        """Stretches of LENGTH sync points on four nodes: each works nine tenths of the time, or waits for SLOW."""
        first = np.arange(0, seconds.size, LENGTH)
        took = seconds.reshape(-1, LENGTH).sum(axis=1)
        for host in ("n1", "n2", SLOW, "n4"):
            waits = slow and host != SLOW
            own = took * np.where(waits & (first >= seconds.size // 2), 0.55, 0.9)
            waited, here = took - own, ranks // 4
            self._append("node_blocks", first.size, {
                "job": job, "host": host, "world": 0, "ranks": here, "first_index": first, "length": LENGTH,
                "count": LENGTH, "last_rank": 0, "last_count": LENGTH // 2, "late_seconds": 0.01 * took,
                "own_rank": 0, "own_rank_seconds": own, "own_seconds": own * here, "p2p_seconds": 0.0,
                "wait_seconds": waited * here, "least_wait_seconds": waited * self._rng.uniform(0.8, 1.0, first.size),
                "ended_at": ended[LENGTH - 1 :: LENGTH],
            })  # fmt: skip

    def _append(self, table: str, rows: int, values: dict[str, Any]) -> None:
        self._seq += 1
        self._producer.append(self._seq, table, rows, values)


def write_history(up: Up) -> list[str]:
    """Runs of `solver` at each scale, then one that failed and one that is slow; the names of all jobs."""
    with Producer(up.endpoint, "solver") as producer, LogReader(up.endpoint) as reader:
        producer.hello()
        runs = Runs(producer)
        jobs = [runs.run(ranks, lambda _: None) for _ in range(ROUNDS) for ranks in SCALES]
        up.wait_for_metric("modeler", rf"barograph_modeler_runs_total {len(jobs)}\.0")
        up.wait_for_metric("modeler", r"barograph_modeler_fit_backlog 0\.0")

        def predicted(job: str) -> None:
            wait_until(lambda: reader.read("predictions", 0, job=job).rows > 0, f"a prediction of {job}")

        jobs += [runs.run(ranks, predicted) for _ in range(REPEATS - ROUNDS) for ranks in SCALES]
        jobs += [runs.run(8, predicted, status=1), runs.run(32, predicted, slow=True)]
        for job in jobs[-2:]:
            wait_until(lambda: reader.read("outcomes", 0, job=job).rows > 0, f"the outcome of {job}")  # noqa: B023
    return jobs
