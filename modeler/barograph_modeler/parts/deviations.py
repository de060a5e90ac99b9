"""How deviations of single intervals change with the length of the work.

Relative to the work, jitter of the work itself stays as it is, while what the operating system takes grows as intervals
get shorter. Both are followed as powers of the own work: one for the body of the distribution, one for its tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.parts.measurement import PhaseMeasurement

BODY: Final = (0.1, 0.9)
"""Quantiles whose difference is the width of the body."""
TAIL: Final = 0.99
"""Quantile above which the mean is the size of the tail."""
SPREAD: Final = 0.5
"""Prior standard deviation of the exponents, about 0."""
MISFIT: Final = 0.3
"""Standard deviation of the log of a run's width or tail about its power law."""
TINY: Final = 1e-9


def deviation_exponents(rows: Sequence[PhaseMeasurement], weights: Floats) -> tuple[float, float]:
    """Exponents of the body's width and of the tail, relative to the work, over own work. weights: (rows,)."""
    logs = np.log([row.own for row in rows])
    body = np.log([max(_quantile(row, BODY[1]) - _quantile(row, BODY[0]), TINY) for row in rows])
    tail = np.log([max(_mean_above(row, TAIL), TINY) for row in rows])
    return _slope(logs, body, weights), _slope(logs, tail, weights)


def scaled_deviations(row: PhaseMeasurement, factor: float, body: float, tail: float) -> Floats:
    """Deviations as expected where own work is `factor` times as long; body, tail: exponents."""
    above = np.cumsum(row.shares) > TAIL
    return np.asarray(row.deviations * np.where(above & (row.deviations > 0), factor**tail, factor**body))


def _quantile(row: PhaseMeasurement, level: float) -> float:
    return float(np.interp(level, np.cumsum(row.shares), row.deviations))


def _mean_above(row: PhaseMeasurement, level: float) -> float:
    above = np.cumsum(row.shares) > level
    if not above.any():
        return float(row.deviations[-1])
    return float(row.shares[above] @ row.deviations[above] / row.shares[above].sum())


def _slope(x: Floats, y: Floats, weights: Floats) -> float:
    """Weighted least squares with a prior at 0."""
    centred, rest = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
    return float(weights @ (centred * rest) / (weights @ centred**2 + (MISFIT / SPREAD) ** 2))
