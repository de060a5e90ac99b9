"""What the log says of the demo's runs: everything the story tells is read back from there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barograph.commands.status import latest
from barograph.views.log import rows
from barograph_collector.client.log_reader import LogReader
from barograph_modeler.pace.pace import Pace

VERDICT_SECONDS: Final = 60.0
Floats = npt.NDArray[np.float64]
Limits = tuple[float, float, float]


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
    seconds: Floats
    ended_at: Floats
    state: str
    score: float
    slowdown: float
    onset_at: float
    alarm_at: float
    """When the first row that says "slow" was written; NaN where none does."""
    sentence: str


def read_chapter(reader: LogReader, title: str, job: str) -> Chapter:
    """Everything the log has of one ended job, once the verdict on it is final. Raises TimeoutError."""
    _wait_verdict(reader, job)
    blocks = [page.columns for page in reader.read_all("blocks", job=job)]
    run = _last(reader, "runs", job)
    entry = _last(reader, "jobs", job)
    scores = [row for page in reader.read_all("scores", job=job) for row in rows(page.columns)]
    slow = [row for row in scores if row["state"] == "slow"]
    final = scores[-1]

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([np.asarray(page[name]) for page in blocks])

    return Chapter(
        title=title,
        job=job,
        workload=entry["workload"],
        started_at=entry["started_at"],
        runtime_seconds=run["runtime_seconds"],
        counted=int(run["intervals"]),
        stored=int(column("count").sum()),
        class_ids=column("class_id"),
        seconds=column("sum_seconds") / column("count"),
        ended_at=column("ended_at"),
        state=final["state"],
        score=final["score"],
        slowdown=final["slowdown"],
        onset_at=final["onset_at"],
        alarm_at=slow[0]["at"] if slow else math.nan,
        sentence=final["sentence"],
    )


@dataclass(frozen=True)
class ClassBand:
    """Lower, expected, upper seconds of the class in which the workload spends most of its time, and of its runtime."""

    class_id: int
    site: str
    interval: Limits
    runtime: Limits


def read_band(reader: LogReader, workload: str, chapters: list[Chapter]) -> ClassBand | None:
    """The newest band of the main class, or None where nothing has been learned."""
    bands = {}
    for page in reader.read_all("bands"):
        bands.update(latest(page.columns, "workload", "kind", "class_id", "method"))
    runtime = bands.get((workload, "runtime", 0, "log-t"))
    time_by_class: dict[int, float] = {}
    for chapter in chapters:
        ids, inverse = np.unique(chapter.class_ids, return_inverse=True)
        for class_id, seconds in zip(ids.tolist(), np.bincount(inverse, chapter.seconds).tolist(), strict=True):
            time_by_class[class_id] = time_by_class.get(class_id, 0.0) + seconds
    main = max(time_by_class, key=lambda class_id: time_by_class[class_id])
    band = bands.get((workload, "interval", main, "tracked"))
    if band is None or runtime is None:
        return None
    sites = {row["class_id"]: row for page in reader.read_all("sites") for row in rows(page.columns)}
    site = sites.get(main)
    return ClassBand(
        main,
        f"{site['before']} and {site['at']} ({site['operation']})" if site else "unknown",
        interval=_limits(band),
        runtime=_limits(runtime),
    )


def _limits(band: dict[str, Any]) -> Limits:
    return float(band["lower_seconds"]), float(band["expected_seconds"]), float(band["upper_seconds"])


def newest_job(reader: LogReader, besides: set[str], seconds: float) -> str:
    """The job that has appeared in the log and is none of `besides`; waits for it. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fresh = [job for job in reader.read("jobs", -5).columns["job"] if job not in besides]
        if fresh:
            return str(fresh[-1])
        time.sleep(0.05)
    raise TimeoutError(f"no new job in the log after {seconds:g} s")


def wait_intervals(reader: LogReader, job: str, count: int, running: Callable[[], bool]) -> None:
    """Wait until the log holds `count` intervals of the job, or the job no longer runs."""
    seen = after = 0
    while seen < count and running():
        page = reader.read("blocks", after, job=job)
        if not page.rows:
            time.sleep(0.1)
            continue
        seen += int(np.sum(page.columns["count"]))
        after = page.next_offset


def wait_learned(reader: LogReader, workload: str, runs: int, seconds: float) -> Pace | None:
    """Wait until the workload's pace rests on `runs` runs; returns the newest pace there is by then."""
    deadline = time.monotonic() + seconds
    while True:
        found = [row for row in rows(reader.read("paces", -50).columns) if row["workload"] == workload]
        pace = Pace.from_row(found[-1]) if found else None
        if (pace is not None and pace.runs >= runs) or time.monotonic() > deadline:
            return pace
        time.sleep(0.1)


def _wait_verdict(reader: LogReader, job: str) -> None:
    deadline = time.monotonic() + VERDICT_SECONDS
    while not ((page := reader.read("scores", -1, 1, job=job)).rows and page.columns["final"][0]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no verdict on {job} after {VERDICT_SECONDS:g} s")
        time.sleep(0.1)


def _last(reader: LogReader, table: str, job: str) -> dict[str, Any]:
    found = [row for page in reader.read_all(table, job=job) for row in rows(page.columns)]
    return found[-1]
