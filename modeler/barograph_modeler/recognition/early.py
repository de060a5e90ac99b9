"""Groups of new jobs while older rows are still read: by a recogniser of its own, from earlier jobs of their work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from barograph_agent.protocol.wire import Column
from barograph_collector.client.follow import Follower, Rows
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.client.selection import ask, select
from barograph_collector.daemon.runner import Output
from barograph_collector.storage.text import names_as_rows
from barograph_modeler.recognition.recognizer import Histories, Recognizer
from barograph_modeler.recognition.request import family_of

MIN_BEHIND: Final = 100_000
"""Offsets that are to be read before this pays: they take a second."""
LATEST_JOBS: Final = 20_000
"""Jobs of a log among which it looks for the first that is not assigned, and older ones that it reads at once."""
OF_GROUP: Final = 32
"""Older jobs of a group of the work of a new job that are read."""
MAX_WORKS: Final = 200
"""Works of which older jobs are read at once; all else is left to the modeler."""
TABLES: Final = ("work_edits", "jobs", "works")
PAUSE_SECONDS: Final = 0.25


class EarlyRecognizer:
    """Assigns new jobs to groups that the log has: those of earlier runs that asked for the same, or for the like.

    All else is left to the modeler's own recogniser, which has all earlier jobs when it comes to a new one: new work,
    what only its traffic tells, and what people have split. It repeats the assignments of this one, which are in the
    log then.
    """

    def __init__(self, histories: Histories = "user") -> None:
        self._recognizer = Recognizer(histories)
        self.quarantine = self._recognizer.quarantine
        self._assigned: set[str] = set()
        self._groups: set[str] = set()
        self._edited: set[str] = set()
        """Families of groups that people have changed."""
        self._own: set[str] = set()
        """Groups of what is new here, since its earlier runs were not read: they may have the name of other work's."""
        self.outputs: list[Output] = []
        """Rows of `assignments` to write since the list was last cleared."""

    def read(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of TABLES, and of `assignments` before those of their jobs. now: Unix seconds."""
        if table == "work_edits":
            self._edited.update(map(family_of, columns["target"]))
            return
        self._recognizer.read(table, columns, now)
        if table == "assignments":
            self._assigned.update(columns["job"])
            self._groups.update(columns["workload"])

    def step(self, now: float) -> None:
        """Assign the jobs of which all is known. now: Unix seconds."""
        self._recognizer.step(now)
        for output in self._recognizer.outputs:
            if self._is_sure(**output.columns):
                self.outputs.append(output)
                self._assigned.add(output.columns["job"])
            elif output.columns["how"] not in ("same", "like"):
                self._own.add(output.columns["workload"])
        self._recognizer.outputs.clear()

    def is_assigned(self, job: str) -> bool:
        """Whether a job has a group in the log, or from here."""
        return job in self._assigned

    def _is_sure(self, *, job: str, workload: str, family: str, how: str, **_: object) -> bool:
        """Whether an assignment is what the modeler's own recogniser would make of all rows."""
        is_known = workload in self._groups and workload not in self._own and family not in self._edited
        return (
            is_known
            and how in ("same", "like")
            and job not in self._assigned
            and not self._recognizer.is_ambiguous(job)
        )


class ReadLog(Protocol):
    """A log that the modeler follows, such as FollowedCollector."""

    @property
    def endpoint(self) -> str:
        """The address of its collector."""
        ...

    @property
    def follower(self) -> Follower:
        """Follows it."""
        ...


@dataclass
class _Early:
    """What is read early of a log. first: the offset from which on all jobs are read."""

    log: ReadLog
    follower: Follower
    reader: LogReader
    first: int
    works: set[str] = field(default_factory=set)
    """Of which earlier jobs were read, by their rows of `jobs`."""


class EarlyReader:
    """Reads for an EarlyRecognizer what is new in logs of which the modeler still reads older rows.

    connect: a reader of its own, by the address of a collector. clock: monotonic, in seconds. min_behind: offsets of a
    log that are to be read. latest: as LATEST_JOBS.
    """

    def __init__(
        self,
        recognizer: EarlyRecognizer,
        connect: Callable[[str], LogReader],
        clock: Callable[[], float],
        min_behind: int = MIN_BEHIND,
        latest: int = LATEST_JOBS,
    ) -> None:
        self.recognizer = recognizer
        self._connect = connect
        self._clock = clock
        self._min_behind, self._latest = min_behind, latest
        self._logs: dict[str, _Early] = {}
        self._due = clock()

    def begin(self, logs: Iterable[ReadLog]) -> bool:
        """Read further logs, those of which the modeler has much before itself; whether any log is read.

        Raises LogUnavailable and ReadRefused.
        """
        for log in logs:
            self._begin(log)
        return bool(self._logs)

    def _begin(self, log: ReadLog) -> None:
        with self._connect(log.endpoint) as reader:
            newest = reader.read("blocks", -1, 1).next_offset
            if newest - max(log.follower.delivered.values()) < self._min_behind:
                return
            oldest = reader.read("jobs", -self._latest, 1).next_offset
            found, _ = ask(
                reader,
                'SELECT min("offset") FILTER (assigned IS NULL) AS first, max("offset") AS last FROM jobs'
                " LEFT JOIN (SELECT DISTINCT job, true AS assigned FROM assignments) USING (job)"
                f' WHERE "offset" >= {oldest}',
            )
        first, last = (int(column[0].as_py() or 0) for column in found.columns)
        follower = Follower(reader, TABLES)
        follower.offsets = dict.fromkeys(TABLES, first - 1 if first else last) | {"work_edits": 0}
        self._logs[log.endpoint] = _Early(log, follower, reader, first or last + 1)

    def poll(self, now: float) -> bool:
        """Read what is new, from time to time; whether there is a log left of which older rows are read."""
        if self._clock() >= self._due:
            for endpoint, early in list(self._logs.items()):
                try:
                    for rows in _rounds(early.follower):
                        if "jobs" in (tables := dict(rows)):
                            self._read_older(early, tables["jobs"], now)
                        for table, columns in rows:
                            self._read(table, columns, now)
                        self.recognizer.step(now)
                except (LogUnavailable, ReadRefused):
                    continue  # whoever follows the log says so
                if min(early.log.follower.offsets[table] for table in TABLES) >= max(early.follower.offsets.values()):
                    del self._logs[endpoint]
                    early.reader.close()
            self.recognizer.step(now)
            self._due = self._clock() + PAUSE_SECONDS
        return bool(self._logs)

    def _read_older(self, early: _Early, jobs: Mapping[str, Column], now: float) -> None:
        """Read which of these jobs are assigned, and earlier jobs of the work of those that are not.

        Raises LogUnavailable and ReadRefused: jobs of which this is not known are left to the modeler.
        """
        of_round = f"job IN (SELECT {names_as_rows(jobs['job'])})"
        for page in select(early.reader, "assignments", of_round):
            self._read("assignments", page.columns, now)
        rows = zip(jobs["workload"], jobs["job"], strict=True)
        waiting = dict.fromkeys(work for work, job in rows if not self.recognizer.is_assigned(job))
        unknown = [work for work in waiting if work not in early.works][-MAX_WORKS:]
        if not unknown:
            return
        earlier = (
            f'WITH earlier AS (SELECT job, workload AS work, "offset" AS began FROM jobs WHERE "offset" < {early.first}'
            f" AND workload IN (SELECT {names_as_rows(unknown)})), grouped AS (SELECT job, arg_max(workload, "
            '"offset") AS "group" FROM assignments WHERE job IN (SELECT job FROM earlier) GROUP BY job), numbered AS'
            ' (SELECT job, row_number() OVER (PARTITION BY work, "group" ORDER BY began DESC) AS number FROM earlier'
            f" LEFT JOIN grouped USING (job)) SELECT job FROM numbered WHERE number <= {OF_GROUP}"
            f" ORDER BY number LIMIT {self._latest}"
        )
        for table in ("assignments", "jobs", "works"):
            # Sidecars may have written what the first of the round asks for before its row of `jobs`.
            also = f" OR {of_round}" if table == "works" else ""
            for page in select(early.reader, table, f"job IN ({earlier}){also}"):
                self._read(table, page.columns, now)
        early.works.update(unknown)
        self.recognizer.step(now)

    def _read(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        with self.recognizer.quarantine.guard(table):
            self.recognizer.read(table, columns, now)

    def close(self) -> None:
        """Close the connections."""
        for early in self._logs.values():
            early.reader.close()


def _rounds(follower: Follower) -> Iterator[Sequence[Rows]]:
    while found := follower.read(0.0):
        yield found
