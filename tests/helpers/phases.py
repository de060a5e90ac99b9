"""Rows of `phases` of programs whose ranks' work is drawn from a seed, summed as a sidecar sums them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from barograph_agent.reduce.phases import PhaseSums
from barograph_modeler.processor import ModelerProcessor
from helpers.scaling import finished

CLASS = 0xC1A55


def node_rows(
    job: str, host: str, own: np.ndarray, *, exchange: np.ndarray | float = 0.0, collective: float = 0.0, world: int = 0
) -> dict[str, Any]:
    """The rows of one node for one class. own, exchange: (intervals, ranks) seconds; collective: of the last rank."""
    intervals, ranks = own.shape
    p2p = np.broadcast_to(exchange, own.shape)
    gap = own + p2p
    leave = gap.max(axis=1) + collective
    times = np.zeros((ranks, 4, intervals), np.int64)
    for row, values in enumerate((gap, np.broadcast_to(leave[:, None], own.shape), gap, p2p)):
        times[:, row] = np.rint(values * 1e9).T
    sums = PhaseSums(world, ranks)
    sent = np.tile(np.array([[8], [2 * ranks], [2000 * ranks]]), intervals)
    sums.add(np.full(intervals, CLASS, np.uint64), times, sent)
    columns = sums.take()
    assert columns is not None
    rows = len(columns["class_id"])
    return {"job": [job] * rows, "host": [host] * rows} | {
        name: value if isinstance(value, list) else [value] * rows for name, value in columns.items()
    }


@dataclass
class PhasedProgram:
    """A program whose own work is divided among ranks, and whose collectives grow with the logarithm of the ranks.

    other: seconds outside of intervals. work: of all ranks in an interval. jitter: of a rank's work between intervals.
    """

    intervals: int = 200
    other: float = 3.0
    work: float = 0.8
    jitter: float = 0.05
    per_node: int = 8
    seed: int = 1
    _made: int = 0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def run(self, ranks: int) -> tuple[float, list[dict[str, Any]]]:
        """The runtime of one run, and the rows of each of its nodes."""
        self._made += 1
        own = self.work / ranks * (1 + self.jitter * self.rng.standard_normal((self.intervals, ranks)))
        collective = 2e-4 * np.log2(ranks)
        seconds = self.other + float((own.max(axis=1) + collective).sum())
        nodes = [own[:, first : first + self.per_node] for first in range(0, ranks, self.per_node)]
        latest = own.max(axis=1)
        rows = [
            # On other nodes than the last one's, even the last rank waits.
            node_rows(f"lab/{self._made}.0.0", f"n{number}", one, collective=collective + (latest - one.max(1)).mean())
            for number, one in enumerate(nodes)
        ]
        return seconds, rows


def observe_run(
    processor: ModelerProcessor,
    number: int,
    ranks: int,
    run: tuple[float, list[dict[str, Any]]],
    params: Mapping[str, object],
    *,
    with_rows: bool = True,
) -> None:
    """Give a modeler the rows of a run of `PhasedProgram`, the numberth one, with or without those of its nodes."""
    seconds, nodes = run
    names = {name: str(value) for name, value in params.items()}
    workload = f"lab/solver@{ranks}x{len(nodes)}" + (f":{json.dumps(names)}" if names else "")
    text = json.dumps(names)
    columns = finished(f"lab/{number}.0.0", workload, ranks, seconds, cluster="lab", app="solver", params=text)
    columns["jobs"]["nodes"] = np.array([len(nodes)])
    processor.observe("jobs", columns["jobs"], 0.0)
    for rows in nodes if with_rows else ():
        processor.observe("phases", rows, 0.0)
    processor.observe("runs", columns["runs"], 0.0)
    processor.step(0.0)
