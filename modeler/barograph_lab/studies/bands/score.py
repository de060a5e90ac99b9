"""Out-of-sample coverage, width and loss of limits, per series and per method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from barograph_lab.studies.runs import over_known
from barograph_lab.studies.series import Series
from barograph_modeler.maxima.band import LEVEL
from barograph_modeler.maxima.predictive import SeriesLimits
from barograph_modeler.maxima.sample import Floats

NEAR: Final = 0.02
"""Largest distance of a coverage from LEVEL that counts as near: two percentage points, inclusive."""
TAIL: Final = (1 - LEVEL) / 2


@dataclass(frozen=True)
class ScoreRow:
    """The score of one method on one series. Shares are of the scored values; None if there are none, see `reason`.

    factor: scored scale over the largest fitted scale, or None. fitted: number of values fitted. scored: number of
    values that had a band. coverage: share inside, limits included. width_ratio: mean width over the width of the
    central LEVEL range of the scored values (an oracle); None if that is 0. pinball: sum of the mean quantile losses of
    both limits, in the unit of the values. pinball_ratio: pinball over that of the oracle. median_error,
    relative_width: of predictions of one value, the error of their median and the width of their limits, over it.
    """

    method: str
    task: str
    by: dict[str, str]
    scale: float | None
    factor: float | None
    fitted: int
    scored: int
    coverage: float | None = None
    below: float | None = None
    above: float | None = None
    width_ratio: float | None = None
    pinball: float | None = None
    pinball_ratio: float | None = None
    median_error: float | None = None
    relative_width: float | None = None
    reason: str = ""


def score(
    method: str,
    task: str,
    series: Series,
    limits: SeriesLimits,
    values: Floats,
    *,
    fitted: int,
    factor: float | None = None,
    reason: str = "",
) -> ScoreRow:
    """Score limits on values: arrays of one length. Values with NaN limits had no band and are left out.

    reason: why there was no band at all, if known.
    """
    has = np.isfinite(limits.lower)
    lower, upper, y = limits.lower[has], limits.upper[has], values[has]
    row = ScoreRow(method, task, series.key, series.scale, factor, fitted, y.size)
    if not y.size:
        return replace(row, reason=reason or "history cannot support the level")
    ideal = np.quantile(y, [TAIL, 1 - TAIL])
    loss, least = pinball(lower, upper, y), pinball(ideal[0], ideal[1], y)
    below, above = float((y < lower).mean()), float((y > upper).mean())
    return replace(
        row,
        coverage=float(((y >= lower) & (y <= upper)).mean()),
        below=below,
        above=above,
        width_ratio=_over(float((upper - lower).mean()), float(ideal[1] - ideal[0])),
        pinball=loss,
        pinball_ratio=_over(loss, least),
    )


def pinball(lower: Floats | float, upper: Floats | float, values: Floats) -> float:
    """Sum of the mean quantile losses of the lower limit at (1 - LEVEL) / 2 and the upper at (1 + LEVEL) / 2."""
    under, over = values - lower, values - upper
    return float((np.maximum(TAIL * under, (TAIL - 1) * under) + np.maximum((1 - TAIL) * over, -TAIL * over)).mean())


def summarize(rows: Iterable[ScoreRow]) -> list[dict[str, Any]]:
    """One row per (method, task), in the order of first occurrence.

    series: number scored. unknown: number without a band. mean_coverage: mean over series. pooled_coverage: over all
    values. share_within_2pp: share of series whose coverage is within NEAR of LEVEL. median_width_ratio, pinball,
    median_error, relative_width: medians over series of width_ratio, pinball_ratio and the last two.
    """
    groups: dict[tuple[str, str], list[ScoreRow]] = {}
    for row in rows:
        groups.setdefault((row.method, row.task), []).append(row)
    return [_summary(method, task, group) for (method, task), group in groups.items()]


def _summary(method: str, task: str, rows: Sequence[ScoreRow]) -> dict[str, Any]:
    scored = [row for row in rows if row.coverage is not None]
    coverage = np.array([row.coverage for row in scored], dtype=np.float64)
    counts = np.array([row.scored for row in scored], dtype=np.float64)
    near = np.abs(coverage - LEVEL) <= NEAR + 1e-9
    return {
        "method": method,
        "task": task,
        "factor": rows[0].factor,
        "series": len(scored),
        "unknown": len(rows) - len(scored),
        "mean_coverage": float(coverage.mean()) if scored else None,
        "pooled_coverage": float(coverage @ counts / counts.sum()) if scored else None,
        "share_within_2pp": float(near.mean()) if scored else None,
        "median_width_ratio": over_known(np.median, (row.width_ratio for row in scored)),
        "pinball": over_known(np.median, (row.pinball_ratio for row in scored)),
        "median_error": over_known(np.median, (row.median_error for row in scored)),
        "relative_width": over_known(np.median, (row.relative_width for row in scored)),
    }


def _over(value: float, least: float) -> float | None:
    return value / least if least > 0 and math.isfinite(value) else None
