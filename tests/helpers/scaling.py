"""Runs of an application that follow a law, as columns of the log."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Columns = dict[str, Any]


def law(ranks: float, n: float = 1.0) -> float:
    """Seconds: a serial part, work that is shared, and messages that grow with the logarithm."""
    return n * (4.0 + 400.0 / ranks + 0.5 * math.log2(ranks))


def finished(
    job: str, workload: str, ranks: int, seconds: float, *, cluster: str, app: str, params: str, status: int = 0
) -> dict[str, Columns]:
    """The rows of `jobs` and `runs` of a job on one node."""
    return {
        "jobs": {
            "job": [job],
            "cluster": [cluster],
            "workload": [workload],
            "app": [app],
            "user": ["u"],
            "params": [params],
            "ranks": np.array([ranks]),
            "nodes": np.array([1]),
            "started_at": np.array([1e9]),
        },
        "runs": {
            "job": [job],
            "ended_at": np.array([1e9 + seconds]),
            "runtime_seconds": np.array([seconds]),
            "exit_status": np.array([status]),
            "intervals": np.array([0]),
            "imported": np.array([1]),
        },
    }


@dataclass
class RunMaker:
    """Numbers runs of one application, and gives them noise."""

    app: str = "solver"
    cluster: str = "lab"
    noise: float = 0.01
    seed: int = 1
    _made: int = 0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)


class Campaign(RunMaker):
    """Makes finished runs without intervals, as an import leaves them. A run takes what the law says, but for noise."""

    def run(self, ranks: int, n: int = 1, *, factor: float = 1.0, status: int = 0) -> dict[str, Columns]:
        """The rows of `jobs` and `runs` of one job; it takes `factor` times what the law says."""
        self._made += 1
        job = f"{self.cluster}/{self._made}.0.0"
        seconds = factor * law(ranks, n) * float(self.rng.lognormal(0, self.noise))
        workload = f"{self.cluster}/{self.app}@{ranks}x1:{n}"
        params = json.dumps({"n": str(n)})
        return finished(job, workload, ranks, seconds, cluster=self.cluster, app=self.app, params=params, status=status)
