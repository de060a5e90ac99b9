"""The classes of intervals with most of an application's time: samples of their intervals, and fits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

import numpy as np

from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row
from barograph_modeler.maxima.band import GEV_METHODS
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.trust import FitVerdict, judge

CLASSES: Final = 3
"""Limit of classes shown."""
VISIBLE: Final = 0.01
"""Least share of the time of a class that is shown."""
SAMPLE: Final = 1_000
"""Approximate size of the sample of a class at one scale, out of all healthy runs."""
SEED: Final = 1


@dataclass(frozen=True)
class ClassReport:
    """A class of intervals with its share of the time, 0 to 1. samples, bands: by workload.

    letter: its name on the page. fitted: the workload whose sample is fitted, with its ranks and the verdict.
    methods: the newest bands of that workload by method.
    """

    letter: str
    site: Row
    share: float
    samples: Mapping[str, Floats]
    bands: Mapping[str, Row]
    fitted: str
    ranks: int
    verdict: FitVerdict | None
    methods: Mapping[str, Row]


def largest_classes(
    context: ViewContext,
    runs: queries.ProblemRuns,
    ranks: Mapping[str, int],
    bands: Sequence[Row],
) -> list[ClassReport]:
    """The classes with most time.

    ranks: by workload, ascending. bands: the newest of the application.
    """
    times = [row for row in context.rows(runs.classes())[:CLASSES] if row["share"] >= VISIBLE]
    if not times:
        return []
    ids = [int(row["class_id"]) for row in times]
    samples: dict[tuple[int, str], list[float]] = {}
    sizes = {(row["workload"], row["class_id"]): row["size"] for row in context.rows(runs.sizes(ids))}
    steps = {one: math.ceil(size / SAMPLE) for one, size in sizes.items()}
    for row in context.rows(runs.intervals(ids, steps)) if steps else ():
        samples.setdefault((row["class_id"], row["workload"]), []).append(row["sum_seconds"])
    found = []
    for letter, class_id, row in zip(ascii_uppercase, ids, times, strict=False):
        sample = {name: np.array(values) for (owner, name), values in samples.items() if owner == class_id}
        those = [band for band in bands if band["class_id"] == class_id]
        banded = {band["workload"]: band for band in those if band["method"] not in GEV_METHODS}
        enough = [name for name in ranks if name in sample and sample[name].size >= MINIMUM_SAMPLES]
        fitted = enough[-1] if enough else ""
        verdict = judge(sample[fitted], seed=SEED) if fitted else None
        methods = {band["method"]: band for band in those if band["workload"] == fitted}
        found.append(
            ClassReport(letter, row, row["share"], sample, banded, fitted, ranks.get(fitted, 0), verdict, methods)
        )
    return found
