"""A node as the kernel shows it to a sidecar."""

from __future__ import annotations

from typing import Any

from barograph_agent.kernel.pressures import Pressures
from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from helpers.clocks import SetClock
from helpers.proc import FakeProc

RANK = 100
"""The process of its rank, which is on core 1."""


class Node:
    """A node with one rank, whose counters grow by given amounts in each second."""

    def __init__(self, root: str = "/nonexistent", **options: Any) -> None:
        self.now = 1000.0
        self.proc = FakeProc()
        self.proc.root = root
        self.pids = {RANK: 3}
        self.counters: dict[str, Any] = {}
        self.totals: dict[str, Any] = {}
        clock = SetClock(lambda: self.now)
        self.pressures = Pressures(clock, self.proc, ranks=lambda: self.pids, **options)
        self.live(0)

    def live(self, seconds: int, state: str = "R", node: dict[str, float] | None = None, **rates: float) -> list[dict]:
        """Rows of so many seconds in which the counters grow at these rates."""
        found = []
        for second in range(seconds + 1):
            if second:
                self.now += 1.0
                for names, added in ((self.counters, rates), (self.totals, node or {})):
                    for name, rate in added.items():
                        names[name] = names.get(name, 0) + rate
            self.proc.process(RANK, state=state, core=1, **self.counters)
            self.proc.node(**self.totals)
            if second:
                found += self.read()
        return found

    def read(self, *, final: bool = False) -> list[dict[str, Any]]:
        """The rows of one look."""
        found = next(self.pressures.read(self.now, final=final), None)
        if found is None:
            return []
        message = wire.append("s/1", 1, found.table, found.length, {"job": "j", "host": "n1", **found.values})
        kinds = TABLES["pressures"].columns
        whole = wire.unpack(message.columns, kinds, message.rows)  # what the collector accepts
        return [dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True)]
