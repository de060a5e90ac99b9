"""Reads the demo's runs from the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from barograph.demo.interference import MAX_TAKEN
from barograph.views import queries
from barograph.views.log import rows_of
from barograph_agent.system.clock import CLOCK, Clock
from barograph_collector.client.log_reader import LogReader
from barograph_collector.storage.text import literal
from barograph_modeler.pace.pace import Pace

VERDICT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
T = TypeVar("T")


@dataclass(frozen=True)
class DemoRun:
    """One run: the shim's count, the intervals in the log, and the final score. Times are Unix seconds."""

    title: str
    job: str
    workload: str
    runtime_seconds: float
    counted: int
    stored: int
    state: str
    slowdown: float
    alarm_at: float
    """Time of the first score with state "slow", or NaN."""
    sentence: str
    taken: float = 0.0
    """Share of the time of its cores that others took, before the demo disturbed it."""

    @property
    def alarmed(self) -> bool:
        """Whether it ended with an alarm."""
        return self.state == "slow"

    def alarmed_after(self, at: float) -> bool:
        """Whether its first alarm is later than a time, in Unix seconds."""
        return self.alarmed and self.alarm_at > at

    @property
    def left_alone(self) -> bool:
        """Whether what was slow about it is not put down to others."""
        return self.taken <= MAX_TAKEN


def read_run(reader: LogReader, title: str, job: str, clock: Clock = CLOCK) -> DemoRun:
    """Read an ended job, once its score is final. Raises TimeoutError."""

    def final() -> bool:
        page = reader.read("scores", -1, 1, job=job)
        return bool(page.rows and page.columns["final"][0])

    _wait(final, VERDICT_SECONDS, f"no verdict on {job}", clock)
    of_job = f"job = {literal(job)}"
    query = f"""
SELECT workload, runtime_seconds, intervals AS counted, state, slowdown, sentence,
    (SELECT coalesce(sum("count"), 0)::BIGINT FROM blocks WHERE {of_job}) AS stored,
    (SELECT coalesce(min(time), 'nan') FROM scores WHERE {of_job} AND state = 'slow') AS alarm_at
FROM ({queries.job(job)})"""
    (row,) = rows_of(reader.query(query))
    return DemoRun(title=title, job=job, **row)


def newest_job(reader: LogReader, known: set[str], seconds: float, clock: Clock = CLOCK) -> str:
    """Wait for a job in the log that is not in `known`; returns the newest. Raises TimeoutError."""

    def new_jobs() -> list[str]:
        return [str(job) for job in reader.read("jobs", -5).columns["job"] if job not in known]

    return _wait(new_jobs, seconds, "no new job in the log", clock)[-1]


def wait_intervals(reader: LogReader, job: str, count: int, running: Callable[[], bool]) -> None:
    """Wait until the log has `count` intervals of the job, or the job has ended."""
    query = f'SELECT coalesce(sum("count"), 0) AS seen FROM blocks WHERE job = {literal(job)}'
    while running() and rows_of(reader.query(query))[0]["seen"] < count:
        CLOCK.sleep(POLL_SECONDS)


def wait_learned(reader: LogReader, workload: str, runs: int, seconds: float, clock: Clock = CLOCK) -> Pace | None:
    """Wait at most `seconds` until the workload's pace includes `runs` runs; returns the newest pace."""
    deadline = clock.monotonic() + seconds
    query = f"SELECT * FROM paces WHERE workload = {literal(workload)} ORDER BY log_offset DESC LIMIT 1"
    while True:
        found = rows_of(reader.query(query))
        pace = Pace.from_row(found[0]) if found else None
        if (pace is not None and pace.runs >= runs) or clock.monotonic() > deadline:
            return pace
        clock.sleep(POLL_SECONDS)


def _wait(condition: Callable[[], T], seconds: float, problem: str, clock: Clock) -> T:
    """Poll `condition` until it is true; returns its value. Raises TimeoutError with `problem`."""
    deadline = clock.monotonic() + seconds
    while not (value := condition()):
        if clock.monotonic() > deadline:
            raise TimeoutError(f"{problem} after {seconds:g} s")
        clock.sleep(POLL_SECONDS)
    return value
