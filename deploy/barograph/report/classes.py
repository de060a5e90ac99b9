"""The classes of an application in which its time is spent: samples of their intervals, and fits to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

import numpy as np

from barograph.report.log import ReportLog, Row
from barograph.report.runs import RunsAtScale
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.trust import FitVerdict, judge

CLASSES: Final = 3
"""Classes shown: those in which most time is spent."""
VISIBLE: Final = 0.01
"""Share of the time from which on a class is shown."""
SAMPLE: Final = 1_000
"""Intervals of a class at one scale, about, out of all healthy runs: what is drawn and what is fitted."""
SEED: Final = 1


@dataclass(frozen=True)
class Class:
    """A class of intervals: its name on the page, its site, its share of the time, its sample by workload, its fit.

    shapes: those that the modeler has fitted there, in the order of time: rows with `fitted_at` and `shape`.
    """

    letter: str
    class_id: int
    site: Row
    share: float
    samples: Mapping[str, Floats]
    bands: Mapping[str, Row]
    fitted: RunsAtScale | None
    verdict: FitVerdict | None
    shapes: Sequence[Row]


def largest(log: ReportLog, healthy: str, scales: Sequence[RunsAtScale], bands: Sequence[Row]) -> list[Class]:
    """The classes with most time. healthy: a SELECT of jobs. bands: the newest of the application."""
    times = log.rows(
        f"""SELECT class_id, sum(sum_seconds) / sum(sum(sum_seconds)) OVER () AS share
        FROM blocks WHERE job IN ({healthy}) GROUP BY class_id
        QUALIFY share >= {VISIBLE} ORDER BY share DESC LIMIT {CLASSES}"""
    )
    if not times:
        return []
    ids = ", ".join(str(row["class_id"]) for row in times)
    singles = f"FROM blocks JOIN jobs USING (job) WHERE count = 1 AND class_id IN ({ids}) AND job IN ({healthy})"
    # The hash decides who is drawn, so that the same log gives the same picture.
    drawn = log.rows(
        f"""WITH sizes AS (SELECT workload, class_id, count(*) AS size {singles} GROUP BY ALL),
          singles AS (SELECT workload, class_id, sum_seconds, hash(job, world, first_index) AS drawn {singles})
        SELECT workload, class_id, sum_seconds FROM singles JOIN sizes USING (workload, class_id)
        WHERE drawn % ceil(size / {SAMPLE})::UBIGINT = 0"""
    )
    samples: dict[tuple[int, str], list[float]] = {}
    for row in drawn:
        samples.setdefault((row["class_id"], row["workload"]), []).append(row["sum_seconds"])
    shapes = log.rows(
        f"""SELECT class_id, workload, fitted_at, shape FROM bands
        WHERE kind = 'interval' AND isfinite(shape) AND class_id IN ({ids})
          AND workload IN (SELECT workload FROM jobs WHERE job IN ({healthy})) ORDER BY fitted_at"""
    )
    sites = log.sites([row["class_id"] for row in times])
    found = []
    for letter, row in zip(ascii_uppercase, times, strict=False):
        class_id = row["class_id"]
        mine = {name: np.array(values) for (owner, name), values in samples.items() if owner == class_id}
        known = {band["workload"]: band for band in bands if band["class_id"] == class_id and band["method"] != "gev"}
        fitted = [scale for scale in scales if mine.get(scale.workload, np.empty(0)).size >= MINIMUM_SAMPLES]
        at = fitted[-1] if fitted else None
        verdict = judge(mine[at.workload], seed=SEED) if at is not None else None
        there = [
            one for one in shapes if at is not None and (one["class_id"], one["workload"]) == (class_id, at.workload)
        ]
        found.append(Class(letter, class_id, sites[class_id], row["share"], mine, known, at, verdict, there))
    return found
