"""The classes of an application in which its time is spent: samples of their intervals, and fits to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

import numpy as np

from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row
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
    """A class of intervals: its name on the page, its site, its share of the time, its samples and bands by workload.

    fitted: the workload whose sample is fitted, with its ranks and the verdict; shapes: those that the modeler has
    fitted there, in the order of time: rows with `fitted_at` and `shape`.
    """

    letter: str
    site: Row
    share: float
    samples: Mapping[str, Floats]
    bands: Mapping[str, Row]
    fitted: str
    ranks: int
    verdict: FitVerdict | None
    shapes: Sequence[Row]


def site(row: Row) -> Row:
    """The site of a row of `queries.classes`, in words where it is not known."""
    return {name: "unknown" if row[name] is None else row[name] for name in ("before", "at", "operation")}


def largest(context: ViewContext, where: queries.Where, ranks: Mapping[str, int], bands: Sequence[Row]) -> list[Class]:
    """The classes with most time. ranks: by workload, the smallest first. bands: the newest of the application."""
    times = context.rows(queries.classes(f"job IN ({where.healthy})", CLASSES, VISIBLE))
    if not times:
        return []
    ids = [int(row["class_id"]) for row in times]
    samples: dict[tuple[int, str], list[float]] = {}
    for row in context.rows(where.intervals(ids, SAMPLE)):
        samples.setdefault((row["class_id"], row["workload"]), []).append(row["sum_seconds"])
    shapes = context.rows(where.shapes(ids))
    found = []
    for letter, class_id, row in zip(ascii_uppercase, ids, times, strict=False):
        mine = {name: np.array(values) for (owner, name), values in samples.items() if owner == class_id}
        known = {band["workload"]: band for band in bands if band["class_id"] == class_id and band["method"] != "gev"}
        enough = [name for name in ranks if name in mine and mine[name].size >= MINIMUM_SAMPLES]
        at = enough[-1] if enough else ""
        verdict = judge(mine[at], seed=SEED) if at else None
        there = [one for one in shapes if (one["class_id"], one["workload"]) == (class_id, at)]
        found.append(Class(letter, site(row), row["share"], mine, known, at, ranks.get(at, 0), verdict, there))
    return found
