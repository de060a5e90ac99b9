"""What the log holds of the demo's runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from barograph.commands.status import latest
from barograph.views.log import Row
from barograph_collector.client.log_reader import LogReader
from barograph_modeler.pace.pace import Pace

VERDICT_SECONDS: Final = 60.0
T = TypeVar("T")
Limits = tuple[float, float, float]
"""Lower, expected and upper seconds."""


@dataclass(frozen=True)
class Chapter:
    """One run: what the shim counted, what the log holds, what the alerts daemon said. Times are Unix seconds."""

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
    """When the first row that says "slow" was written; NaN where none does."""
    sentence: str


@dataclass(frozen=True)
class ClassBand:
    """Limits of intervals of the class in which the workload spends most of its time, and of its runtime."""

    class_id: int
    site: str
    interval: Limits
    runtime: Limits


def read_chapter(reader: LogReader, title: str, job: str) -> Chapter:
    """Everything the log has of one ended job, once the verdict on it is final. Raises TimeoutError."""

    def final() -> bool:
        page = reader.read("scores", -1, 1, job=job)
        return bool(page.rows and page.columns["final"][0])

    _wait(final, VERDICT_SECONDS, f"no verdict on {job}")

    def columns(table: str) -> dict[str, npt.NDArray[Any]]:
        pages = [page.columns for page in reader.read_all(table, job=job)]
        return {name: np.concatenate([np.asarray(page[name]) for page in pages]) for name in pages[0]}

    entry, run, blocks, scores = (columns(table) for table in ("jobs", "runs", "blocks", "scores"))
    slow = scores["at"][scores["state"] == "slow"]
    return Chapter(
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


def read_band(reader: LogReader, workload: str, chapters: list[Chapter]) -> ClassBand | None:
    """The newest band of the class that most time is spent in, or None where nothing has been learned."""
    bands, sites = {}, {}
    for page in reader.read_all("bands"):
        bands.update(latest(page.columns, "workload", "kind", "class_id", "method"))
    for page in reader.read_all("sites"):
        sites.update(latest(page.columns, "class_id"))
    ids, inverse = np.unique(np.concatenate([chapter.class_ids for chapter in chapters]), return_inverse=True)
    spent = np.bincount(inverse, np.concatenate([chapter.seconds for chapter in chapters]))
    main = int(ids[spent.argmax()])
    interval, runtime = bands.get((workload, "interval", main, "tracked")), bands.get((workload, "runtime", 0, "log-t"))
    if interval is None or runtime is None:
        return None
    site = sites.get((main,))
    between = f"{site['before']} and {site['at']} ({site['operation']})" if site else "unknown"
    return ClassBand(main, between, _limits(interval), _limits(runtime))


def _limits(band: Row) -> Limits:
    return float(band["lower_seconds"]), float(band["expected_seconds"]), float(band["upper_seconds"])


def newest_job(reader: LogReader, besides: set[str], seconds: float) -> str:
    """The newest job in the log that is none of `besides`; waits for it. Raises TimeoutError."""

    def fresh() -> str | None:
        jobs = [str(job) for job in reader.read("jobs", -5).columns["job"] if job not in besides]
        return jobs[-1] if jobs else None

    return _wait(fresh, seconds, "no new job in the log")


def wait_intervals(reader: LogReader, job: str, count: int, running: Callable[[], bool]) -> None:
    """Wait until the log holds `count` intervals of the job, or the job no longer runs."""
    seen = after = 0
    while seen < count and running():
        page = reader.read("blocks", after, job=job)
        if page.rows:
            seen += int(np.sum(page.columns["count"]))
            after = page.next_offset
        else:
            time.sleep(0.1)


def wait_learned(reader: LogReader, workload: str, runs: int, seconds: float) -> Pace | None:
    """Wait until the workload's pace rests on `runs` runs; returns the newest pace there is by then."""
    deadline = time.monotonic() + seconds
    while True:
        row = latest(reader.read("paces", -50).columns, "workload").get((workload,))
        pace = Pace.from_row(row) if row else None
        if (pace is not None and pace.runs >= runs) or time.monotonic() > deadline:
            return pace
        time.sleep(0.1)


def _wait(found: Callable[[], T | None], seconds: float, otherwise: str) -> T:
    """What `found` returns once that is true. Raises TimeoutError, which says what is so otherwise."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {seconds:g} s")
        time.sleep(0.1)
    return value
