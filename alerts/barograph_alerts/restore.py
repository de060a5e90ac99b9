"""What the scorer reads of the log at its start: as much as it keeps, whatever the length of the log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from barograph_agent.protocol.wire import Column
from barograph_alerts.job.progress import JOBS
from barograph_alerts.job.references import MAX_WORKLOADS
from barograph_alerts.job.rows import VERDICT_COLUMNS
from barograph_alerts.processor import MAX_JUDGED, Scorer
from barograph_collector.client.backfill import Backfill, chosen
from barograph_collector.client.log_reader import LogReader, RowBatch
from barograph_collector.daemon.runner import observe
from barograph_collector.daemon.sources import FollowedCollector
from barograph_modeler.state import lru

MAX_ROWS: Final = 200_000
"""Latest rows of a table that are read."""
MAX_SCORES: Final = 4 * MAX_JUDGED
"""The same of `scores`, of which a job has several."""
MAX_OPEN_DAYS: Final = 30
"""A job whose row is older and that has no end is given up: its end was lost, and all blocks since would be read."""
NEAR: Final = 250_000
"""Offsets that are read in a second, about."""
FARTHER: Final = 8
"""Rows before the begins of the nearer jobs are read again for the farther ones: at most a seventh more."""
LATEST: Final[Mapping[str, int]] = {
    "paces": MAX_ROWS,
    "bands": MAX_ROWS,
    "events": MAX_ROWS,
    "sites": MAX_ROWS,
    "runs": 2 * JOBS,
    "phases": MAX_ROWS,
    "nodes": MAX_ROWS,
    "pressures": 20_000,
}
"""How many of the latest rows are read. Of `runs`: those of the jobs whose sync points are known; of `pressures`: a
node's speed is a median over its last jobs."""
LAST_COUNTS: Final = {"paces": ("workload",), "bands": ("workload", "kind", "method", "class_id")}
"""Tables of whose rows with equal values in these columns the last one counts."""
SINCE_OPEN: Final = ("features", "node_blocks", "workers", "pressures", "blocks", "silences", "signatures")
"""Tables of which those of open jobs are read from the begin of the first on."""
OF_JOBS: Final = frozenset(SINCE_OPEN) | {"runs", "predictions", "phases", "nodes"}
"""Tables whose rows of an open job are read in the order of the log. Those of `predictions` are for open jobs only."""


class Restore:
    """Brings a new scorer to where a former one was, and followers to where they read on.

    What is known of all is read at once, and followers begin at the ends of their logs, so that new jobs are judged as
    soon as that is read. The rows of jobs that were open are left to backfills.
    """

    def __init__(self, scorer: Scorer, near: int = NEAR) -> None:
        """near: as of `nearest_first`."""
        self._scorer = scorer
        self._near = near
        self._logs: dict[tuple[str, str], _ReadLog] = {}
        """By the address of the collector and the name of its log."""

    def __call__(self, sources: Sequence[FollowedCollector], now: float) -> None:
        """Read these collectors. now: Unix seconds.

        Raises LogUnavailable and ReadRefused. It may be called again then, and for further collectors later: each row
        is read once.
        """
        # Before the rows of `jobs`: a job with rows up to here is among them.
        heads = [_head(source) for source in sources]
        logs = [self._logs.setdefault((source.endpoint, source.name), _ReadLog()) for source in sources]
        # Verdicts of all, before jobs of any.
        for source, log in zip(sources, logs, strict=True):
            self._read_scores(source, log, now)
        for table in ("jobs", "assignments"):
            for source, log in zip(sources, logs, strict=True):
                self._read(source, log, table, now)
        begun = set().union(*(log.jobs for log in self._logs.values()))
        for source, log, head in zip(sources, logs, heads, strict=True):
            names = log.jobs | (log.assigned - begun)
            if log.scores >= MAX_SCORES:
                # Of older jobs the verdict may be before what was read.
                self._scorer.forget_before(log.first_score, names)
            self._scorer.give_up_before(_first_offset(source.reader), names)
            opened = self._scorer.open_jobs(names, head)
            for table in LATEST:
                if table in source.follower.offsets:
                    self._read_latest(source, table, head, opened, now)
            for table in OF_JOBS - LATEST.keys():
                source.follower.offsets[table] = head
            source.backfills = [
                Backfill(source.reader, dict.fromkeys(sorted(OF_JOBS), min(jobs.values())), jobs)
                for jobs in nearest_first(opened, head, self._near)
            ]

    def _read_scores(self, source: FollowedCollector, log: _ReadLog, now: float) -> None:
        for page in _pages(source, "scores", log.last_score, MAX_SCORES):
            log.first_score = log.first_score or int(page.columns["offset"][0])
            log.scores += page.rows
            # Other rows, and what they have besides, tell nothing of ended jobs.
            needed: dict[str, Column] = {name: page.columns[name] for name in VERDICT_COLUMNS if name in page.columns}
            if (finals := chosen(needed, [bool(final) for final in page.columns["final"]])) is not None:
                observe(self._scorer, "scores", finals, now)
            log.last_score = page.next_offset

    def _read(self, source: FollowedCollector, log: _ReadLog, table: str, now: float) -> None:
        """Read the latest rows of a table, and go on behind them. Of judged jobs those that are kept are processed."""
        kept = source.reader.read(table, -2 * JOBS, 1).next_offset
        for page in _pages(source, table, source.follower.offsets[table], MAX_ROWS):
            rows = zip(page.columns["job"], page.columns["offset"], strict=True)
            which = [offset >= kept or not self._scorer.is_judged(job) for job, offset in rows]
            if (part := chosen(page.columns, which)) is not None:
                observe(self._scorer, table, part, now)
            source.note(table, page.columns)
            source.follower.offsets[table] = page.next_offset
            (log.jobs if table == "jobs" else log.assigned).update(page.columns["job"])

    def _read_latest(
        self, source: FollowedCollector, table: str, head: int, opened: Collection[str], now: float
    ) -> None:
        """Read the latest rows of a table up to an offset, but those that a backfill will read."""
        last = LatestRows(LAST_COUNTS[table]) if table in LAST_COUNTS else None
        for page in _pages(source, table, source.follower.offsets[table], LATEST[table]):
            jobs = page.columns["job"] if table in OF_JOBS else [""] * page.rows
            which = [at <= head and job not in opened for at, job in zip(page.columns["offset"], jobs, strict=True)]
            if last is not None:
                last.add(page.columns, which)
            elif (part := chosen(page.columns, which)) is not None:
                observe(self._scorer, table, part, now)
                source.note(table, part)
            source.follower.offsets[table] = min(page.next_offset, head)
            if page.next_offset > head:
                break
        for row in last.rows() if last is not None else ():
            observe(self._scorer, table, row, now)
        source.follower.offsets[table] = head


class LatestRows:
    """The last of the rows that have equal values in some columns, of the workloads that had a row last.

    names: of these columns, that of the workload first. As many workloads are kept as the scorer keeps: what is read of
    others is not decoded.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._rows: OrderedDict[str, dict[tuple[Any, ...], tuple[Mapping[str, Column], int]]] = OrderedDict()

    def add(self, columns: Mapping[str, Column], which: Sequence[bool]) -> None:
        """Add the rows that are chosen, behind those before.

        >>> latest, columns = LatestRows(["workload"]), {"workload": ["a", "b", "a", "a"], "runs": [1, 2, 3, 4]}
        >>> latest.add(columns, [True, True, True, False])
        >>> [(row["workload"], row["runs"]) for row in latest.rows()]
        [(['b'], [2]), (['a'], [3])]
        """
        keys = zip(*(columns[name] for name in self._names), strict=True)
        last = {key: row for row, (key, is_chosen) in enumerate(zip(keys, which, strict=True)) if is_chosen}
        for key, row in sorted(last.items(), key=lambda one: one[1]):
            lru.get(self._rows, str(key[0]), dict, MAX_WORKLOADS)[key] = columns, row

    def rows(self) -> Iterator[Mapping[str, Column]]:
        """The rows, each as columns of one, those of the workload with the latest row last."""
        for of_workload in self._rows.values():
            for columns, row in of_workload.values():
                yield {name: values[row : row + 1] for name, values in columns.items()}


@dataclass
class _ReadLog:
    """What was read of a log: its jobs, those with assignments, and its scores."""

    jobs: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    scores: int = 0
    first_score: int = 0
    last_score: int = 0
    """Offsets."""


def nearest_first(opened: Mapping[str, int], head: int, near: int = NEAR) -> list[dict[str, int]]:
    """Jobs in groups by how far before an offset they began, so that none waits for rows long before its own.

    opened: the offsets of their begins. near: offsets of the first group; each other has FARTHER times as many as the
    one before.

    >>> nearest_first({"a": 100, "b": 39_000_000, "c": 39_900_000, "d": 39_999_000}, 40_000_000)
    [{'c': 39900000, 'd': 39999000}, {'b': 39000000}, {'a': 100}]
    """
    groups, span, left = [], near, dict(opened)
    while left:
        if group := {job: offset for job, offset in left.items() if head - offset <= span}:
            groups.append(group)
        left = {job: offset for job, offset in left.items() if job not in group}
        span *= FARTHER
    return groups


def _pages(source: FollowedCollector, table: str, after: int, rows: int) -> Iterator[RowBatch]:
    """The rows of a table behind those that were read, or its latest ones where none was."""
    return source.reader.read_all(table, after) if after else source.reader.read_latest(table, rows)


def _head(source: FollowedCollector) -> int:
    """The offset of the last row of what jobs have most of."""
    return max((page.next_offset for table in SINCE_OPEN for page in source.reader.read_latest(table, 1)), default=0)


def _first_offset(reader: LogReader) -> int:
    """The first offset of the day MAX_OPEN_DAYS before the newest, whatever the clocks of nodes; 0 if there is none."""
    newest = "(SELECT max(day) FROM partitions)"
    answer = reader.query(f"SELECT max(first_offset) AS first FROM partitions WHERE day <= {newest} - {MAX_OPEN_DAYS}")
    return int(pa.ipc.open_stream(answer.stream).read_all()["first"][0].as_py() or 0)
