"""Predictions of a problem without runs, from other problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from barograph_modeler.scaling.mixture import Mixture

FREEDOM: Final = 4.0
BETWEEN_PROBLEMS: Final = 1.0
"""Prior of the spread of log seconds between problems of one application."""


def from_other_problems(known: Sequence[Mixture]) -> Mixture:
    """Log seconds of a problem without runs, as another draw from the distribution of the others at the same scale."""
    limits = np.array([one.quantiles([0.16, 0.5, 0.84]) for one in known])
    y, variance = limits[:, 1], ((limits[:, 2] - limits[:, 0]) / 2) ** 2
    between = (FREEDOM * BETWEEN_PROBLEMS**2 + ((y - y.mean()) ** 2).sum()) / (FREEDOM + y.size - 1)
    spread = np.sqrt(between * (1 + 1 / y.size) + variance.mean())
    return Mixture.single(float(np.median(y)), float(spread), FREEDOM + y.size - 1)
