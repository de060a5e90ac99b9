"""Barnes' regressions: log T = sum of b_i log N_i + g(p), with g of degree 1 or 2 in log p (Barnes et al. 2008).

As Mokrov (2020), section 3.1, prints them. N_i: the numbers that make up the size. Logarithms are to base 2. All sizes
of a problem are fitted together by least squares in the logarithms, so that errors are relative.

One size, or sizes along one weak series, leave the coefficients of the terms ambiguous. Predictions for runs of that
size or along that series are unique all the same, and only these are answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

TOLERANCE: Final = 1e-9
"""Singular values up to this share of the largest one count as 0, and so do shares of a row in their directions."""
MAX_LOG: Final = 1000.0
"""Largest log2 of predicted seconds in magnitude: a parabola overflows far out."""


def _terms(degree: int, ranks: Floats, size: Floats) -> Floats:
    powers = np.log2(ranks)[:, None] ** np.arange(degree + 1)
    return np.concatenate([powers, np.log2(size).reshape(ranks.size, -1)], axis=1)


def fit(degree: int, runs: Runs) -> Callable[[Floats, Floats, Floats], Floats]:
    """Seconds over ranks, nodes (unused) and size, with g of this degree; NaN for ambiguous rows.

    Raises ValueError for fewer than `degree` + 1 scales.
    """
    if runs.scales.size <= degree:
        raise ValueError(f"{runs.scales.size} scales, expected {degree + 1}")
    columns = _terms(degree, runs.ranks, runs.size)
    unit = np.abs(columns).max(axis=0)
    unit[unit == 0] = 1
    left, values, right = np.linalg.svd(columns / unit, full_matrices=True)
    rank = int((values > TOLERANCE * values[0]).sum())
    coefficients = right[:rank].T @ ((left.T @ np.log2(runs.seconds))[:rank] / values[:rank])
    ambiguous = right[rank:].T

    def seconds(ranks: Floats, nodes: Floats, size: Floats) -> Floats:
        rows = _terms(degree, ranks, size) / unit
        logs = np.clip(rows @ coefficients, -MAX_LOG, MAX_LOG)
        determined = (np.abs(rows @ ambiguous) <= TOLERANCE * np.abs(rows).max(axis=1, keepdims=True)).all(axis=1)
        return np.asarray(np.where(determined, np.exp2(logs), np.nan))

    return seconds
