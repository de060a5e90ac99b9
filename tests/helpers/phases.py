"""Rows of `phases` of programs whose ranks' work is drawn from a seed, summed as a sidecar sums them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from barograph_agent.reduce.intervals import Cursor
from barograph_agent.reduce.ranks import Member, NodeReducer
from barograph_agent.ring.reader import Ring
from barograph_modeler.processor import ModelerProcessor
from helpers.rings import STARTED_NS, FakeShim
from helpers.scaling import finished

CLASS = 0xC1A55


def node_rows(
    job: str, host: str, own: np.ndarray, *, exchange: np.ndarray | float = 0.0, collective: float = 0.0, world: int = 0
) -> dict[str, Any]:
    """The rows of one node for one class. own, exchange: (intervals, ranks) seconds; collective: of the last rank."""
    intervals, ranks = own.shape
    p2p = np.broadcast_to(exchange, own.shape)
    gap = own + p2p
    leave = np.rint((gap.max(axis=1) + collective) * 1e9).astype(np.uint64)
    # The first record ends an interval of another class.
    begin = STARTED_NS + 1 + np.cumsum(leave) - leave
    with TemporaryDirectory() as folder:
        shims = [FakeShim(Path(folder) / f"{rank}.ring", 1 << intervals.bit_length()) for rank in range(ranks)]
        for rank, shim in enumerate(shims):
            shim.put(1, shim.site(1))
            records = shim.records[1 : 1 + intervals]
            records["enter_ns"] = begin + np.rint(gap[:, rank] * 1e9).astype(np.uint64)
            records["exit_ns"], records["p2p_ns"] = begin + leave, np.rint(p2p[:, rank] * 1e9)
            records["index"], records["site"], records["bytes"] = 1 + np.arange(intervals), 1, 8
            records["messages"], records["message_bytes"] = 2, 2000
            shim.set(head=1 + intervals)
        with ExitStack() as rings:
            opened = [rings.enter_context(Ring(shim.path)) for shim in shims]
            members = [Member(ring, Cursor(0, rank, ranks)) for rank, ring in enumerate(opened)]
            reducer = NodeReducer(world, members)
            reducer.read(final=True)
            columns = reducer.pop_phases()
    assert columns is not None
    most = int(np.argmax(columns["count"]))
    columns = {name: value[most] if isinstance(value, list) else value for name, value in columns.items()}
    return {"job": [job], "host": [host]} | {name: [value] for name, value in columns.items()} | {"class_id": [CLASS]}


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
