"""Expansion of features: logarithms, and logarithms of products and ratios."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

WIDEST: Final = 16
"""Most features for which products and ratios are formed: m features become m * m columns."""


def logarithms(values: Floats) -> Floats:
    """Each feature, and sign(x) log(1 + |x|): (n, m) to (n, 2 m). Counts span decades, and may be 0."""
    return np.hstack([values, _logarithm(values)])


def ratios(values: Floats) -> Floats:
    """Logarithms of features, products and ratios: (n, m) to (n, m * m); only of features for m > WIDEST.

    Work per rank is a ratio, the size of a grid a product: one split of a tree on such a column replaces many splits on
    single features.
    """
    logs = _logarithm(values)
    if logs.shape[1] > WIDEST:
        return logs
    pairs = list(combinations(range(logs.shape[1]), 2))
    products = [logs[:, i] + logs[:, j] for i, j in pairs]
    quotients = [logs[:, i] - logs[:, j] for i, j in pairs]
    return np.column_stack([logs, *products, *quotients])


def _logarithm(values: Floats) -> Floats:
    logs: Floats = np.sign(values) * np.log1p(np.abs(values))
    return logs
