"""Reads the demo's runs from the log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from barograph.demo.interference import MAX_TAKEN
from barograph.views.log import latest, limits
from barograph_collector.client.log_reader import LogReader
from barograph_modeler.pace.pace import Pace

VERDICT_SECONDS: Final = 60.0
T = TypeVar("T")
Limits = tuple[float, float, float]
"""Lower, expected and upper limit in seconds."""


@dataclass(frozen=True)
class DemoRun:
    """One run: the shim's count, the intervals in the log, and the final score. Times are Unix seconds."""

    title: str
    job: str
    workload: str
    started_at: float
    runtime_seconds: float
    counted: int
    stored: int
    class_ids: npt.NDArray[np.uint64]
    seconds: npt.NDArray[np.float64]
    ended_at: npt.NDArray[np.float64]
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


@dataclass(frozen=True)
class ClassBand:
    """The interval band of the class with the largest share of the time, and the runtime band of the workload."""

    class_id: int
    site: str
    interval: Limits
    runtime: Limits


def read_run(reader: LogReader, title: str, job: str) -> DemoRun:
    """Read an ended job, once its score is final. Raises TimeoutError."""

    def final() -> bool:
        page = reader.read("scores", -1, 1, job=job)
        return bool(page.rows and page.columns["final"][0])

    _wait(final, VERDICT_SECONDS, f"no verdict on {job}")

    def columns(table: str) -> dict[str, npt.NDArray[Any]]:
        pages = [page.columns for page in reader.read_all(table, job=job)]
        return {name: np.concatenate([np.asarray(page[name]) for page in pages]) for name in pages[0]}

    entry, run, blocks, scores = (columns(table) for table in ("jobs", "runs", "blocks", "scores"))
    slow = scores["at"][scores["state"] == "slow"]
    return DemoRun(
        title=title,
        job=job,
        workload=str(entry["workload"][-1]),
        started_at=float(entry["started_at"][-1]),
        runtime_seconds=float(run["runtime_seconds"][-1]),
        counted=int(run["intervals"][-1]),
        stored=int(blocks["count"].sum()),
        class_ids=blocks["class_id"],
        seconds=blocks["sum_seconds"] / blocks["count"],
        ended_at=blocks["ended_at"],
        state=str(scores["state"][-1]),
        slowdown=float(scores["slowdown"][-1]),
        alarm_at=float(slow[0]) if slow.size else math.nan,
        sentence=str(scores["sentence"][-1]),
    )


def read_band(reader: LogReader, workload: str, runs: list[DemoRun]) -> ClassBand | None:
    """The newest bands of the workload and its dominant class, or None if there are none."""
    bands, sites = {}, {}
    for page in reader.read_all("bands"):
        bands.update(latest(page.columns, "workload", "kind", "class_id", "method"))
    for page in reader.read_all("sites"):
        sites.update(latest(page.columns, "class_id"))
    ids, inverse = np.unique(np.concatenate([run.class_ids for run in runs]), return_inverse=True)
    seconds = np.bincount(inverse, np.concatenate([run.seconds for run in runs]))
    main = int(ids[seconds.argmax()])
    interval, runtime = bands.get((workload, "interval", main, "tracked")), bands.get((workload, "runtime", 0, "log-t"))
    if interval is None or runtime is None:
        return None
    site = sites.get((main,))
    between = f"{site['before']} and {site['at']} ({site['operation']})" if site else "unknown"
    return ClassBand(main, between, limits(interval), limits(runtime))


def newest_job(reader: LogReader, known: set[str], seconds: float) -> str:
    """Wait for a job in the log that is not in `known`; returns the newest. Raises TimeoutError."""

    def new_jobs() -> list[str]:
        return [str(job) for job in reader.read("jobs", -5).columns["job"] if job not in known]

    return _wait(new_jobs, seconds, "no new job in the log")[-1]


def wait_intervals(reader: LogReader, job: str, count: int, running: Callable[[], bool]) -> None:
    """Wait until the log has `count` intervals of the job, or the job has ended."""
    seen = after = 0
    while seen < count and running():
        page = reader.read("blocks", after, job=job)
        if page.rows:
            seen += int(np.sum(page.columns["count"]))
            after = page.next_offset
        else:
            time.sleep(0.1)


def wait_learned(reader: LogReader, workload: str, runs: int, seconds: float) -> Pace | None:
    """Wait at most `seconds` until the workload's pace includes `runs` runs; returns the newest pace."""
    deadline = time.monotonic() + seconds
    while True:
        row = latest(reader.read("paces", -50).columns, "workload").get((workload,))
        pace = Pace.from_row(row) if row else None
        if (pace is not None and pace.runs >= runs) or time.monotonic() > deadline:
            return pace
        time.sleep(0.1)


def _wait(condition: Callable[[], T], seconds: float, problem: str) -> T:
    """Poll `condition` until it is true; returns its value. Raises TimeoutError with `problem`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{problem} after {seconds:g} s")
        time.sleep(0.1)
    return value
