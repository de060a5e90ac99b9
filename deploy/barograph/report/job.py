"""What a report on a job shows: how it went, by class and by node, and what had been said of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph.report.log import NothingKnown, ReportLog, Row
from barograph_modeler.maxima.sample import Floats

PHASES: Final = 12
"""Classes told of: those in which most time was spent."""
POINTS: Final = 1_500
"""Intervals of a class that are drawn, about."""


@dataclass(frozen=True)
class Phase:
    """A class of the job: site, share of its time, intervals, the band, and what is drawn: Unix seconds, seconds."""

    letter: str
    site: Row
    share: float
    intervals: int
    mean_seconds: float
    band: Row | None
    step: int
    at: Floats
    seconds: Floats


@dataclass(frozen=True)
class NodeShare:
    """Means over ranks and sync points. held_share: of the stretches in which the others waited for this node."""

    host: str
    ranks: int
    own_seconds: float
    waited_seconds: float
    held_share: float


@dataclass(frozen=True)
class JobReport:
    """Everything the page says. Times are Unix seconds; None where there is none."""

    job: Row
    run: Row | None
    score: Row | None
    prediction: Row | None
    outcome: Row | None
    runtime_band: Row | None
    phases: Sequence[Phase]
    nodes: Sequence[NodeShare]

    @property
    def started_at(self) -> float:
        """When its first process started."""
        return float(self.job["started_at"])

    @property
    def onset_at(self) -> float | None:
        """Since when it has been as it was when it alarmed."""
        return self._time("onset_at")

    @property
    def alarmed_at(self) -> float | None:
        """When the latest alarm was raised."""
        return self._time("alarmed_at")

    @property
    def members(self) -> Sequence[str]:
        """The nodes that the alarm is put down to."""
        named = json.loads(self.score["members"]) if self.score is not None else []
        return [str(name) for name in named]

    def _time(self, name: str) -> float | None:
        at = math.nan if self.score is None else float(self.score[name])
        return at if math.isfinite(at) else None


def gather(log: ReportLog, name: str) -> JobReport:
    """Ask the log. Raises NothingKnown."""

    def newest(table: str) -> Row | None:
        rows = log.rows(f"SELECT * FROM {table} WHERE job = '{name}' ORDER BY \"offset\" DESC LIMIT 1")
        return rows[0] if rows else None

    job = newest("jobs")
    if job is None:
        raise NothingKnown(f"no job {name!r} is in the log, expected one that `barograph status` shows")
    bands = log.rows(
        f"""SELECT * FROM bands WHERE workload = '{job["workload"]}' AND method <> 'gev'
        QUALIFY row_number() OVER (PARTITION BY class_id, kind ORDER BY "offset" DESC) = 1"""
    )
    return JobReport(
        job,
        newest("runs"),
        newest("scores"),
        newest("predictions"),
        newest("outcomes"),
        next((band for band in bands if band["kind"] == "runtime"), None),
        _phases(log, name, {band["class_id"]: band for band in bands if band["kind"] == "interval"}),
        _nodes(log, name),
    )


def _phases(log: ReportLog, job: str, bands: dict[int, Row]) -> list[Phase]:
    classes = log.rows(
        f"""SELECT class_id, count(*) AS rows, sum(count)::BIGINT AS intervals, sum(sum_seconds) AS seconds,
          sum(sum_seconds) / sum(sum(sum_seconds)) OVER () AS share
        FROM blocks WHERE job = '{job}' GROUP BY class_id ORDER BY seconds DESC LIMIT {PHASES}"""
    )
    sites = log.sites([row["class_id"] for row in classes])
    found = []
    for number, row in enumerate(classes):
        class_id, step = row["class_id"], max(1, math.ceil(2 * row["rows"] / POINTS))
        drawn = _thinned(log, job, class_id, step)
        found.append(
            Phase(
                chr(ord("A") + number),
                sites[class_id],
                row["share"],
                row["intervals"],
                row["seconds"] / row["intervals"],
                bands.get(class_id),
                step,
                np.array([one["ended_at"] for one in drawn]),
                np.array([one["seconds"] for one in drawn]),
            )
        )
    return found


def _thinned(log: ReportLog, job: str, class_id: int, step: int) -> list[Row]:
    """Of each `step` consecutive rows the first and the slowest."""
    return log.rows(
        f"""WITH numbered AS (SELECT ended_at, sum_seconds / count AS seconds,
            row_number() OVER (ORDER BY world, first_index) - 1 AS number
          FROM blocks WHERE job = '{job}' AND class_id = {class_id})
        SELECT ended_at, seconds FROM numbered
        QUALIFY number % {step} = 0 OR seconds = max(seconds) OVER (PARTITION BY number // {step}) ORDER BY ended_at"""
    )


def _nodes(log: ReportLog, job: str) -> list[NodeShare]:
    """The node that the others waited for most often first."""
    rows = log.rows(
        f"""WITH mine AS (SELECT * FROM node_blocks WHERE job = '{job}' AND count > 0),
          held AS (SELECT arg_min(host, least_wait_seconds / count) AS host FROM mine
            GROUP BY world, first_index, length HAVING count(*) > 1)
        SELECT host, max(ranks) AS ranks, sum(own_seconds) / sum(count * ranks) AS own_seconds,
          sum(p2p_seconds + wait_seconds) / sum(count * ranks) AS waited_seconds,
          (SELECT count(*) FROM held WHERE held.host = mine.host)
            / greatest(1, (SELECT count(*) FROM held)) AS held_share
        FROM mine GROUP BY host ORDER BY held_share DESC, host"""
    )
    return [NodeShare(**row) for row in rows]
