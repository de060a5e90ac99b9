"""What features look like to a learner: logarithms, and logarithms of products and ratios."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

WIDEST: Final = 16
"""Features up to which products and ratios are formed: m of them become m * m columns."""


def logarithms(values: Floats) -> Floats:
    """Each feature and beside it sign(x) log(1 + |x|): (n, m) to (n, 2 m). Counts span decades, and may be 0."""
    return np.hstack([values, _logarithm(values)])


def ratios(values: Floats) -> Floats:
    """Logarithms of all features, their products and their ratios: (n, m) to (n, m * m); see WIDEST for many features.

    Work per rank is a ratio and the size of a grid a product: a tree that splits on one column at a time needs many
    splits to say what one split on such a column says.
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
