"""Simulated jobs as columns of the log: what modeler and alerts read, without a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from barograph_collector.daemon.runner import Output

Columns = dict[str, Any]
CLASSES = (11, 22)


@dataclass
class Simulation:
    """Makes jobs of one workload: two classes of intervals, 4 ms and 1 ms, a few per cent of noise. Seeded."""

    workload: str = "lab/app@2x1"
    seed: int = 1
    intervals: int = 8000
    now: float = 1_000_000.0
    params: str = "{}"
    ranks: int = 2
    _made: int = 0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def job(self, *, slow_from: int | None = None, factor: float = 1.0, status: int = 0) -> dict[str, Columns]:
        """One whole job; from interval `slow_from` on everything takes `factor` times as long."""
        self._made += 1
        name = f"lab/{self._made}.0.0"
        n = self.intervals
        seconds = np.where(np.arange(n) % 2 == 0, 0.004, 0.001) * self.rng.lognormal(0, 0.03, n)
        if slow_from is not None:
            seconds[slow_from:] *= factor
        started, ends = self.now, self.now + np.cumsum(seconds)
        self.now = float(ends[-1]) + 1
        return {
            "jobs": {"log_offset": [self._made], "job": [name], "workload": [self.workload], "app": ["app"],
                     "user": ["u"], "nodes": [1], "started_at": [started], "cluster": ["lab"], "params": [self.params],
                     "ranks": [self.ranks], "host": ["n1"]},
            "blocks": {
                "job": [name] * n,
                "world": np.zeros(n, dtype=np.int64),
                "first_index": np.arange(n),
                "class_id": np.tile(np.array(CLASSES, dtype=np.uint64), n // 2),
                "count": np.ones(n, dtype=np.int64),
                "sum_seconds": seconds,
                "sum_squares": seconds**2,
                "sum_cubes": seconds**3,
                "min_seconds": seconds,
                "max_seconds": seconds,
                "ended_at": ends,
            },
            "runs": {"log_offset": [self._made], "job": [name], "runtime_seconds": [float(seconds.sum())],
                     "exit_status": [status], "intervals": [n]},
        }  # fmt: skip


def scores_of(outputs: list[Output]) -> list[Output]:
    """The rows of `scores` among what a scorer writes."""
    return [output for output in outputs if output.table == "scores"]


def verdict(job: dict[str, Columns], score: float, final: int = 1, state: str = "") -> Columns:
    """A row of `scores` for the job."""
    return {"job": job["jobs"]["job"], "workload": job["jobs"]["workload"], "score": [score], "final": [final],
            "state": [state or ("slow" if score > 1 else "healthy")],
            "cause": ["none"], "members": ["[]"], "hosts": ["[]"], "time": [0.0],
            "evidence": ["{}"]}  # fmt: skip


def part(columns: Columns, start: int, stop: int) -> Columns:
    """Rows start..stop-1."""
    return {name: values[start:stop] for name, values in columns.items()}
