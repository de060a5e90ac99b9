"""How well limits held the values that came after, per series and per method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from barograph_modeler.maxima.band import LEVEL
from barograph_modeler.maxima.predictive import SeriesLimits
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.averages import over_known
from barograph_modeler.studies.series import Series

NEAR: Final = 0.02
"""A series is near its level within two percentage points, limits of that included."""
TAIL: Final = (1 - LEVEL) / 2


@dataclass(frozen=True)
class ScoreRow:
    """One method on one series. Shares are of the scored values; None where nothing was scored, `reason` says why.

    factor: the scored scale over the largest fitted one, else None. fitted, scored: values; `scored` are those that had
    a band. coverage: share inside, limits included. width_ratio: mean width over that of the central LEVEL range of the
    scored values themselves, which no method can know; None if that has no width. pinball: mean quantile loss of both
    limits together, in the unit of the values; pinball_ratio: over that of this same range.
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
    """Score limits on values: arrays of one length; values whose limits are NaN had no band and are left out.

    reason: why there was no band at all, if that is known.
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
    """Mean quantile loss of the lower limit at (1 - LEVEL) / 2 and of the upper at (1 + LEVEL) / 2, added up."""
    under, over = values - lower, values - upper
    return float((np.maximum(TAIL * under, (TAIL - 1) * under) + np.maximum((1 - TAIL) * over, -TAIL * over)).mean())


def summarize(rows: Iterable[ScoreRow]) -> list[dict[str, Any]]:
    """A row per (method, task), in the order they first come.

    series: those scored; unknown: those without a band. mean_coverage: mean over series; pooled_coverage: over values.
    share_within_2pp: share of the series whose coverage is within NEAR of LEVEL. median_width_ratio: median over
    series. pinball: median over series of pinball_ratio.
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
    }


def _over(value: float, least: float) -> float | None:
    return value / least if least > 0 and math.isfinite(value) else None
