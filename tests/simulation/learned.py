"""What was learned, in the simulation: rows that a modeler and sidecars write again and again, with few keys.

And which rows of a log a restarted alerts daemon reads: `rows_to_read` is that promise, as of ADR 79.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barograph_agent.system.system import System
from barograph_collector.client.follow import LogWriter
from simulation.database import SimulatedDatabase, Tables
from simulation.facility import Node, Start

WRITTEN: Final = 40
"""Rows."""
OTHERS: Final = ("sim/steel@2x1", "sim/glass@2x1")
"""Workloads that no job has."""
KEYS: Final[Mapping[str, Sequence[str]]] = {
    "paces": ("workload",),
    "bands": ("workload", "kind", "method", "class_id"),
}
"""Columns of what was learned: of rows with equal values there the last one counts."""
ON_DEMAND: Final = ("paces", "bands")
"""Tables of which older rows are read when a job of their workload begins."""
LATEST: Final = ("runs", "phases", "nodes", "pressures")
"""Tables of which the rows of judged jobs count too."""
WHOLE: Final = ("jobs", "assignments")
"""Tables that are read from their begins, where a log is as short as here."""


def rows_to_read(log: Tables, start: Start) -> dict[str, set[int]]:
    """The offsets of the rows of a log that alerts reads, from the start on, by table."""
    jobs = log.all("jobs")
    begun = {job: at for job, at in zip(jobs["job"], jobs["log_offset"], strict=True) if job not in start.judged}
    found = {}
    for table, after in start.offsets.items():
        rows = log.all(table)
        offsets = rows["log_offset"]
        if table in WHOLE:
            found[table] = set(offsets)
            continue
        found[table] = {at for at in offsets if at > after}
        if table in ON_DEMAND:
            pass
        elif table in KEYS:
            found[table].update(at for at in _last(table, rows).values() if at <= after)
        elif table == "events":
            closed = zip(rows["kind"], offsets, strict=True)
            found[table].update(at for kind, at in closed if kind == "regime-closed")
        else:
            for job, at in zip(rows["job"], offsets, strict=True):
                if at > begun[job] if job in begun else table in LATEST:
                    found[table].add(at)
    return found


def last_rows(log: Tables, table: str, workload: str) -> set[int]:
    """The offsets of the rows that count of what the log has learned of a workload."""
    return {at for key, at in _last(table, log.all(table)).items() if key[0] == workload}


def _last(table: str, rows: Mapping[str, Sequence[Any]]) -> dict[tuple[Any, ...], int]:
    """The last row of each key, of rows in the order of their offsets."""
    return dict(zip(zip(*(rows[name] for name in KEYS[table]), strict=True), rows["log_offset"], strict=True))


def first_paces(log: Tables, start: Start, after: int) -> dict[str, int]:
    """Jobs of a log that were open at the start and are compared with another pace than the last one, and the least
    offset of that.

    after: the offset from which paces are followed.
    """
    names = ("workload", "fitted_at", "log_offset")
    rows = list(zip(*(log.all("paces")[name] for name in names), strict=True))
    jobs = log.all("jobs")
    found = {}
    columns = (jobs[name] for name in ("job", "workload", "started_at", "log_offset"))
    for job, workload, since, known in zip(*columns, strict=True):
        # Of `jobs` later rows may have been read than of others: those jobs begin with what is known then.
        if job in start.judged or known > start.offsets["blocks"]:
            continue
        before = [at for name, fitted, at in rows if name == workload and fitted <= since]
        later = [at for name, fitted, at in rows if name == workload and fitted > since and at <= after]
        # One that came meanwhile may be the last one.
        if before and max(before) <= after and later and max(before) < max(later):
            found[job] = max(before)
    return found


class LearnedRows:
    """Rows of what was learned, again and again, of the jobs' workload and of others, as one modeler writes them."""

    def __init__(self, node: Node, learned: Tables, seed: int) -> None:
        """learned: the rows that there are of the jobs' workload, which stay as they are."""
        self._node, self._chance = node, random.Random(seed)
        rows = {table: SimulatedDatabase(learned).read(table, 0, 1000).columns for table in ("paces", "bands")}
        self._rows = {
            table: [
                {name: [value[row]] if isinstance(value, list) else value[row] for name, value in columns.items()}
                for row in range(len(columns["log_offset"]))
            ]
            for table, columns in rows.items()
        }
        makers: list[Callable[[float], tuple[str, dict[str, Any]]]] = [self._learned, self._event]
        self._makers = [*makers, self._learned, self._learned]
        node.start("modeler", self._run)

    def _run(self, system: System) -> None:
        writer = LogWriter(self._node.facility.shards[0].endpoint, f"modeler/{system.clock.now_ns()}", system=system)
        left = WRITTEN
        while left or not writer.idle:
            if left:
                table, row = self._chance.choice(self._makers)(system.clock.now())
                writer.put(table, 1, row)
                left -= 1
            writer.pump()
            system.network.wait([writer], 0.5 * self._chance.random())

    def _learned(self, now: float) -> tuple[str, dict[str, Any]]:
        table = self._chance.choice(list(self._rows))
        row = dict(self._chance.choice(self._rows[table])) | {"fitted_at": now}
        if workload := self._chance.choice(["", "", *OTHERS]):
            row["workload"] = [workload]
        del row["log_offset"]
        return table, row

    def _event(self, now: float) -> tuple[str, dict[str, Any]]:
        kind = self._chance.choice(["regime-closed", "noted"])
        return "events", {
            "source": [self._chance.choice(OTHERS)], "kind": [kind], "rows": 1, "detail": ["{}"], "time": now
        }  # fmt: skip
