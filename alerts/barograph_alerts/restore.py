"""What the scorer reads of the log at its start: as much as it keeps, whatever the length of the log."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from barograph_alerts.job.progress import JOBS
from barograph_alerts.job.rows import VERDICT_COLUMNS
from barograph_alerts.processor import BLAMING, MAX_JUDGED, Scorer
from barograph_alerts.recall import LAST_COUNTS
from barograph_collector.client.backfill import Backfill, chosen
from barograph_collector.client.log_reader import LogReader
from barograph_collector.client.selection import ask, numbers_as_rows, select
from barograph_collector.daemon.runner import observe
from barograph_collector.daemon.source import LogSource
from barograph_collector.storage.text import names_as_rows

MAX_ROWS: Final = 200_000
"""Latest rows of a table among which the collector looks."""
MAX_VERDICTS: Final = 20_000
"""Latest final verdicts that are read. Of those before them the ones that blame nodes are, and the jobs' names."""
JOBS_OF_QUERY: Final = 20_000
"""Open jobs that a query names, at most."""
MAX_OPEN_DAYS: Final = 30
"""A job whose row is older and that has no end is given up: its end was lost, and all blocks since would be read."""
NEAR: Final = 250_000
"""Offsets that are read in a second, about."""
FARTHER: Final = 8
"""Rows before the begins of the nearer jobs are read again for the farther ones: at most a seventh more."""
LATEST: Final[Mapping[str, int]] = {"runs": JOBS, "phases": MAX_ROWS, "nodes": MAX_ROWS, "pressures": 20_000}
"""How many of the latest rows are read. Of `runs`: those of the jobs whose sync points are known; of `pressures`: a
node's speed is a median over its last jobs."""
ACCEPTED: Final = "kind = 'regime-closed' AND detail LIKE '%\"accepted\"%'"
"""Rows of `events` of workloads whose alarmed runs have become the history."""
SINCE_OPEN: Final = ("features", "node_blocks", "workers", "pressures", "sites", "blocks", "silences", "signatures")
"""Tables of which those of open jobs are read from the begin of the first on."""
OF_JOBS: Final = frozenset(SINCE_OPEN) | {"runs", "predictions", "phases", "nodes"}
"""Tables whose rows of an open job are read in the order of the log. Those of `predictions` are for open jobs only."""


class Restore:
    """Brings a new scorer to where a former one was, and followers to where they read on.

    What is known of all is read at once, and followers begin at the ends of their logs, so that new jobs are judged as
    soon as that is read. The rows of jobs that were open are left to backfills. The collector finds the rows that
    matter: jobs without a verdict, the last ones of each workload.
    """

    def __init__(self, scorer: Scorer, near: int = NEAR) -> None:
        """near: as of `nearest_first`."""
        self._scorer = scorer
        self._near = near
        self._log = _ReadLog()

    def __call__(self, source: LogSource, now: float) -> None:
        """Read the log. now: Unix seconds.

        Raises LogUnavailable and ReadRefused. It may be called again then: each row is read once.
        """
        # Before the rows of `jobs`: a job with rows up to here is among them.
        head, log, reader = _head(source), self._log, source.reader
        self._read_scores(reader, now)
        for table in ("jobs", "assignments"):
            self._read(source, table, now)
        names = log.jobs | log.assigned
        self._scorer.forget_before(log.first, names)
        self._close_ended(reader, names)
        self._scorer.give_up_before(log.long_ago, names)
        opened = self._scorer.open_jobs(names, head)
        for table in LATEST:
            self._read_latest(source, table, head, opened, now)
        self._read_first_paces(reader, opened)
        for table in (OF_JOBS | LAST_COUNTS.keys()) - LATEST.keys():
            source.follower.offsets[table] = head
        source.backfills = [
            Backfill(reader, dict.fromkeys(sorted(OF_JOBS), min(jobs.values())), jobs)
            for jobs in nearest_first(opened, head, self._near)
        ]

    def _read_scores(self, reader: LogReader, now: float) -> None:
        """Read the latest final verdicts, those before that blame nodes, and then the names of the judged jobs."""
        log = self._log
        days, _ = ask(
            reader,
            "SELECT min(first_offset), min(first_offset) FILTER (NOT archived), max(first_offset) FILTER (day <="
            f" (SELECT arg_max(day, first_offset) FROM partitions) - {MAX_OPEN_DAYS}) FROM partitions",
        )
        first, hot, log.long_ago = (int(column[0].as_py() or 0) for column in days.columns)
        log.first = max(first, reader.read("jobs", -MAX_ROWS, 1).next_offset)
        finals, lacking = ask(
            reader,
            f"SELECT min(log_offset), min(log_offset) FILTER (number <= {MAX_VERDICTS}) FROM (SELECT log_offset,"
            f" row_number() OVER (ORDER BY log_offset DESC) AS number FROM scores WHERE {_final(log)}"
            f" ORDER BY number LIMIT {MAX_JUDGED})",
        )
        if lacking:
            # Jobs that began in days which cannot be read may have their verdicts there.
            log.first = max(log.first, hot)
        oldest, kept = (int(column[0].as_py() or 0) for column in finals.columns)
        if not oldest:
            return
        blaming = ", ".join(f"'{cause}'" for cause in sorted(BLAMING))
        within = f"{_final(log)} AND log_offset >= {oldest}"
        matters = f"log_offset > {log.verdict} AND (log_offset >= {kept} OR cause IN ({blaming}))"
        for page in select(reader, "scores", f"{within} AND {matters}", VERDICT_COLUMNS):
            observe(self._scorer, "scores", page.columns, now)
            log.verdict = page.next_offset
        for page in select(reader, "scores", f"{within} AND log_offset > {log.judged}", ["job"]):
            self._scorer.close(page.columns["job"])
            log.judged = page.next_offset

    def _read(self, source: LogSource, table: str, now: float) -> None:
        """Read the rows of jobs that have no verdict, and the latest ones of those that have."""
        after, reader, log = source.follower.offsets[table], source.reader, self._log
        kept, upto = (reader.read(table, -rows, 1).next_offset for rows in (JOBS, 1))
        if upto <= after:
            return
        is_open = (
            f"log_offset >= {log.first} AND job NOT IN (SELECT job FROM scores WHERE {_final(log)})"
            f" AND (log_offset >= {log.long_ago} OR job NOT IN (SELECT job FROM runs))"
        )
        within = f"log_offset > {after} AND log_offset <= {upto}"
        for page in select(reader, table, f"{within} AND (log_offset >= {kept} OR ({is_open}))"):
            observe(self._scorer, table, page.columns, now)
            source.follower.offsets[table] = page.next_offset
            (log.jobs if table == "jobs" else log.assigned).update(page.columns["job"])
        source.follower.offsets[table] = upto

    def _close_ended(self, reader: LogReader, names: Collection[str]) -> None:
        """Watch no job that began long ago and has ended: the lake keeps no verdict for ever."""
        old = sorted(self._scorer.open_jobs(names, self._log.long_ago - 1))
        for start in range(0, len(old), JOBS_OF_QUERY):
            listed = names_as_rows(old[start : start + JOBS_OF_QUERY])
            for page in select(reader, "runs", f"job IN (SELECT {listed})", ["job"]):
                self._scorer.close(page.columns["job"])

    def _read_first_paces(self, reader: LogReader, opened: Collection[str]) -> None:
        """Read the paces that there were when jobs began, where there are later ones.

        Where alarmed runs of a workload were accepted since, the last pace counts.
        """
        begun = [(job, workload, at) for job, workload, at in self._scorer.begun(opened) if math.isfinite(at)]
        for start in range(0, len(begun), JOBS_OF_QUERY):
            jobs, workloads, times = zip(*begun[start : start + JOBS_OF_QUERY], strict=True)
            values = f"{names_as_rows(jobs)}, {names_as_rows(workloads)}, {numbers_as_rows(times, 'DOUBLE')}"
            within = f"log_offset >= {reader.read('paces', -MAX_ROWS, 1).next_offset}"
            found, _ = ask(
                reader,
                f"WITH begun(job, workload, since) AS (SELECT {values})"
                " SELECT max(log_offset) FILTER (fitted_at <= since) AS first, job FROM begun JOIN paces"
                f" USING (workload) WHERE {within} AND NOT EXISTS (FROM events WHERE source = workload"
                f" AND time >= since AND {ACCEPTED}) GROUP BY job HAVING first < max(log_offset)",
                JOBS_OF_QUERY,
            )
            of_offset: dict[int, list[str]] = {}
            for offset, job in zip(*(column.to_pylist() for column in found.columns), strict=True):
                of_offset.setdefault(offset, []).append(job)
            if not of_offset:
                continue
            for page in select(reader, "paces", f"log_offset IN (SELECT {numbers_as_rows(of_offset, 'BIGINT')})"):
                for number, offset in enumerate(page.columns["log_offset"]):
                    row = {name: values[number] for name, values in page.columns.items()}
                    for job in of_offset[int(offset)]:
                        self._scorer.begin_with(job, row)

    def _read_latest(self, source: LogSource, table: str, head: int, opened: Collection[str], now: float) -> None:
        """Read the latest rows of a table up to an offset, but those that a backfill will read."""
        after = source.follower.offsets[table]
        for page in source.reader.read_all(table, after) if after else source.reader.read_latest(table, LATEST[table]):
            rows = zip(page.columns["log_offset"], page.columns["job"], strict=True)
            part = chosen(page.columns, [at <= head and job not in opened for at, job in rows])
            if part is not None:
                observe(self._scorer, table, part, now)
            source.follower.offsets[table] = min(page.next_offset, head)
            if page.next_offset > head:
                break
        source.follower.offsets[table] = head


@dataclass
class _ReadLog:
    """What was read of a log: its jobs, and those with assignments."""

    jobs: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    verdict: int = 0
    judged: int = 0
    """Offsets of the last verdict and name of a judged job."""
    first: int = 0
    """Offset before which a job that has no verdict may have had one."""
    long_ago: int = 0
    """Offset before which a job without an end is given up."""


def _final(log: _ReadLog) -> str:
    """The rows of `scores` that are final verdicts of jobs that may be open. A verdict follows the job's first row."""
    return f"final = 1 AND log_offset > {log.first}"


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


def _head(source: LogSource) -> int:
    """The offset of the last row of what jobs have most of."""
    return max((page.next_offset for table in SINCE_OPEN for page in source.reader.read_latest(table, 1)), default=0)
