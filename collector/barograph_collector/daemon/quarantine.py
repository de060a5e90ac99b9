"""Rows that a processor cannot handle: their job is given up, and the daemon goes on."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.families import counter, gauge

MAX_JOBS: Final = 20_000
"""Jobs in quarantine that are kept; beyond it the oldest are let in again."""
MAX_DETAIL: Final = 300
"""Characters of an exception in the log."""
_log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """An exception of a processor. place: the table of the rows, or the name of a step. job: empty if no job's."""

    place: str
    job: str
    detail: str


class Quarantine:
    """The jobs whose data raised an exception; what is read of them afterwards is skipped.

    failures: exceptions by place, since the start. skipped_rows: rows of jobs in quarantine. forget: called with a job
    when it is put in quarantine, to remove it from the state of the processor.
    """

    def __init__(self, forget: Callable[[str], None] = lambda job: None) -> None:
        self.failures: Counter[str] = Counter()
        self.skipped_rows = 0
        self._forget = forget
        self._jobs: OrderedDict[str, None] = OrderedDict()
        self._unreported: list[Failure] = []

    def __len__(self) -> int:
        return len(self._jobs)

    @contextlib.contextmanager
    def guard(self, place: str, job: str = "") -> Iterator[None]:
        """Put the job in quarantine if the block raises an exception, which ends here."""
        try:
            yield
        except Exception as error:
            self.add(place, job, error)

    def add(self, place: str, job: str, error: Exception) -> None:
        """Record an exception, and put its job in quarantine unless it is empty."""
        failure = Failure(place, job, _encodable(f"{type(error).__name__}: {error}"[:MAX_DETAIL]))
        if job not in self._jobs if job else not self.failures[place]:
            # With the traceback only the first time: a defect may raise in each cycle.
            trace = "" if self.failures[place] else "\n" + _encodable("".join(traceback.format_exception(error)))
            _log.error("%s of %s: %s%s", place, job or "no job", failure.detail, trace)
            self._unreported.append(failure)
        self.failures[place] += 1
        if job and job not in self._jobs:
            self._jobs[job] = None
            if len(self._jobs) > MAX_JOBS:
                self._jobs.popitem(last=False)
            self._forget(job)

    def observe(
        self, table: str, columns: Mapping[str, Column], read: Callable[[str, Mapping[str, Column]], None]
    ) -> None:
        """Call `read` with the rows of each job of a table, in their order, but those in quarantine."""
        for job, part, rows in _by_job(columns):
            if job in self._jobs:
                self.skipped_rows += rows
                continue
            try:
                read(table, part)
            except Exception as error:
                self.add(table, job if "job" in columns else "", error)

    def take_unreported(self) -> list[Failure]:
        """The failures since the last call, those of one job and of one place once."""
        taken, self._unreported = self._unreported, []
        return taken


def _encodable(text: str) -> str:
    """The text without surrogates, which JSON of a client can bring."""
    return text.encode("utf-8", "replace").decode()


@dataclass(eq=False)
class QuarantineExporter(Collector):
    """Exposes what a processor could not handle."""

    quarantine: Quarantine

    def collect(self) -> Iterable[Metric]:
        """All families."""
        found = self.quarantine
        text = "Exceptions while rows were processed, by table or step."
        failures = [((place,), number) for place, number in found.failures.items()]
        yield counter("barograph_processing_failures", text, failures, "place")
        yield gauge("barograph_quarantined_jobs", "Jobs whose data raised an exception, and are skipped.", len(found))
        yield counter("barograph_quarantined_rows", "Rows of such jobs that were skipped.", found.skipped_rows)


def _by_job(columns: Mapping[str, Column]) -> Iterator[tuple[str, Mapping[str, Column], int]]:
    """Consecutive rows of one job, or without a column of jobs of one source, workload or the like."""
    names = ("job", "source", "workload", "target", "application", "class_id")
    key = next((name for name in names if name in columns), next(iter(columns)))
    values = columns[key]
    # A daemon that begins reads hundreds of thousands of rows, each of another job.
    parts, count = list(columns.items()), len(values)
    start = 0
    while start < count:
        stop, value = start + 1, values[start]
        while stop < count and values[stop] == value:
            stop += 1
        whole = start == 0 and stop == count
        yield str(value), columns if whole else {name: part[start:stop] for name, part in parts}, stop - start
        start = stop
