"""The classes of an application in which its time is spent: samples of their intervals, and fits to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph.report.log import Log, Row
from barograph.report.runs import Scale
from barograph_modeler.maxima.gev import MINIMUM_SAMPLES
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.trust import Verdict, judge

CLASSES: Final = 3
"""Classes shown: those in which most time is spent."""
VISIBLE: Final = 0.01
"""Share of the time from which on a class is shown."""
SAMPLE: Final = 1_000
"""Intervals of a class at one scale, about, out of all healthy runs: what is drawn and what is fitted."""
SEED: Final = 1


@dataclass(frozen=True)
class Class:
    """A class of intervals: its site, its share of the time, its sample by workload, and its fit at `fitted`."""

    class_id: int
    site: Row
    share: float
    samples: Mapping[str, Floats]
    bands: Mapping[str, Row]
    fitted: Scale | None
    verdict: Verdict | None


def largest(log: Log, healthy: str, scales: Sequence[Scale], bands: Sequence[Row]) -> list[Class]:
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
    sites = log.sites([row["class_id"] for row in times])
    found = []
    for row in times:
        class_id = row["class_id"]
        mine = {name: np.array(values) for (owner, name), values in samples.items() if owner == class_id}
        known = {band["workload"]: band for band in bands if band["class_id"] == class_id and band["method"] != "gev"}
        fitted = [scale for scale in scales if mine.get(scale.workload, np.empty(0)).size >= MINIMUM_SAMPLES]
        verdict = judge(mine[fitted[-1].workload], seed=SEED) if fitted else None
        found.append(
            Class(class_id, sites[class_id], row["share"], mine, known, fitted[-1] if fitted else None, verdict)
        )
    return found
