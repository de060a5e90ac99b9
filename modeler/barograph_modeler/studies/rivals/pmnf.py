"""Performance model normal form, searched: T = c0 + c1 p**i log2(p)**j (Calotoiu et al. 2013; Extra-P's one-term form).

Every pair (i, j) is fitted by least squares to the medians over repeats and scored by leave-one-scale-out validation:
the least mean symmetric absolute percentage error wins. Exponents may be negative, for decreasing times.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.rivals.laws import Model, each, of_one_size

FEWEST: Final = 3
"""Scales: two coefficients and one to leave out."""
_SIZES: Final = (0.0, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 1.0, 5 / 4, 4 / 3, 3 / 2, 2.0)
EXPONENTS: Final = tuple(
    pair for pair in product(sorted({s * size for s in (-1, 1) for size in _SIZES}), (0, 1, 2)) if pair != (0.0, 0)
)
"""The candidate pairs (i, j)."""


def _term(ranks: Floats, i: float, j: int) -> Floats:
    return np.asarray(ranks**i * np.log2(ranks) ** j)


def search(runs: Runs) -> Callable[[Floats], Floats]:
    """Seconds over ranks by the best pair of exponents. runs: of one size, at FEWEST scales or more."""
    scales = runs.scales
    times = np.array([np.median(runs.seconds[runs.ranks == scale]) for scale in scales])
    best, answer = np.inf, (np.array([times.mean(), 0.0]), EXPONENTS[0])
    for i, j in EXPONENTS:
        columns = np.stack([np.ones(scales.size), _term(scales, i, j)], axis=1)
        unit = np.abs(columns).max(axis=0)
        inverse = np.linalg.pinv(columns / unit)
        leverage = (columns / unit * inverse.T).sum(axis=1)
        if (leverage > 1 - 1e-9).any():
            continue
        coefficients = inverse @ times
        # The residual of a left-out scale is its residual / (1 - leverage): no refit.
        left_out = times - (times - columns / unit @ coefficients) / (1 - leverage)
        error = float((np.abs(left_out - times) / (np.abs(left_out) + times)).mean())
        if error < best:
            best, answer = error, (coefficients / unit, (i, j))
    (base, factor), exponents = answer
    return lambda ranks: np.asarray(base + factor * _term(ranks, *exponents))


MODELS: Final = (Model("pmnf", "c0 + c1 p**i log2(p)**j, exponents searched", each(of_one_size(search, FEWEST))),)
