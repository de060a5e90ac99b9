"""Groups of new jobs while older rows are still read: by a recogniser of its own, from earlier jobs of their work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final

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


class EarlyReader:
    """Reads for an EarlyRecognizer what is new in a log of which the modeler reads older rows.

    connect: a reader of its own. clock: monotonic, in seconds. min_behind: offsets of the log that are to be read.
    latest: as LATEST_JOBS.
    """

    def __init__(
        self,
        recognizer: EarlyRecognizer,
        connect: Callable[[], LogReader],
        clock: Callable[[], float],
        min_behind: int = MIN_BEHIND,
        latest: int = LATEST_JOBS,
    ) -> None:
        self.recognizer = recognizer
        self._connect = connect
        self._clock = clock
        self._min_behind, self._latest = min_behind, latest
        self._reader: LogReader | None = None
        """None where there is nothing to read early."""
        self._works: set[str] = set()
        """Of which earlier jobs were read, by their rows of `jobs`."""
        self._due = clock()

    def begin(self, behind: Follower) -> bool:
        """Read the log if the modeler has much before itself, as its follower says; whether it is read.

        Raises LogUnavailable and ReadRefused.
        """
        self.close()
        with ExitStack() as stack:
            reader = stack.enter_context(self._connect())
            newest = reader.read("blocks", -1, 1).next_offset
            if newest - max(behind.delivered.values()) < self._min_behind:
                return False
            oldest = reader.read("jobs", -self._latest, 1).next_offset
            found, _ = ask(
                reader,
                "SELECT min(log_offset) FILTER (assigned IS NULL) AS first, max(log_offset) AS last FROM jobs"
                " LEFT JOIN (SELECT DISTINCT job, true AS assigned FROM assignments) USING (job)"
                f" WHERE log_offset >= {oldest}",
            )
            stack.pop_all()
        first, last = (int(column[0].as_py() or 0) for column in found.columns)
        self._behind, self._reader = behind, reader
        self._follower = Follower(reader, TABLES)
        self._follower.offsets = dict.fromkeys(TABLES, first - 1 if first else last) | {"work_edits": 0}
        self._first = first or last + 1
        """The offset from which on all jobs are read."""
        return True

    def poll(self, now: float) -> bool:
        """Read what is new, from time to time; whether older rows of the log are still to be read."""
        if self._clock() >= self._due and self._reader is not None:
            # Whoever follows the log says so where it does not answer.
            with suppress(LogUnavailable, ReadRefused):
                for rows in _rounds(self._follower):
                    if "jobs" in (tables := dict(rows)):
                        self._read_older(self._reader, tables["jobs"], now)
                    for table, columns in rows:
                        self._read(table, columns, now)
                    self.recognizer.step(now)
                if min(self._behind.offsets[table] for table in TABLES) >= max(self._follower.offsets.values()):
                    self.close()
            self.recognizer.step(now)
            self._due = self._clock() + PAUSE_SECONDS
        return self._reader is not None

    def _read_older(self, reader: LogReader, jobs: Mapping[str, Column], now: float) -> None:
        """Read which of these jobs are assigned, and earlier jobs of the work of those that are not.

        Raises LogUnavailable and ReadRefused: jobs of which this is not known are left to the modeler.
        """
        of_round = f"job IN (SELECT {names_as_rows(jobs['job'])})"
        for page in select(reader, "assignments", of_round):
            self._read("assignments", page.columns, now)
        rows = zip(jobs["workload"], jobs["job"], strict=True)
        waiting = dict.fromkeys(work for work, job in rows if not self.recognizer.is_assigned(job))
        unknown = [work for work in waiting if work not in self._works][-MAX_WORKS:]
        if not unknown:
            return
        earlier = (
            "WITH earlier AS (SELECT job, workload AS work, log_offset AS began FROM jobs"
            f" WHERE log_offset < {self._first} AND workload IN (SELECT {names_as_rows(unknown)})),"
            " grouped AS (SELECT job, arg_max(workload, log_offset) AS history FROM assignments"
            " WHERE job IN (SELECT job FROM earlier) GROUP BY job), numbered AS (SELECT job, row_number() OVER"
            " (PARTITION BY work, history ORDER BY began DESC) AS number FROM earlier LEFT JOIN grouped USING (job))"
            f" SELECT job FROM numbered WHERE number <= {OF_GROUP} ORDER BY number LIMIT {self._latest}"
        )
        for table in ("assignments", "jobs", "works"):
            # Sidecars may have written what the first of the round asks for before its row of `jobs`.
            also = f" OR {of_round}" if table == "works" else ""
            for page in select(reader, table, f"job IN ({earlier}){also}"):
                self._read(table, page.columns, now)
        self._works.update(unknown)
        self.recognizer.step(now)

    def _read(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        with self.recognizer.quarantine.guard(table):
            self.recognizer.read(table, columns, now)

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None


def _rounds(follower: Follower) -> Iterator[Sequence[Rows]]:
    while found := follower.read(0.0):
        yield found
