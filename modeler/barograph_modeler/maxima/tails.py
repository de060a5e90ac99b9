"""Limits that a given share of values exceeds, though a density is never quite right, least in its tail.

The tail probability at which a limit is set is a quantile of the tail probabilities that recent values had, by what was
predicted of them: conformal prediction with that as the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Self

import numpy as np

from barograph_modeler.maxima.recent import SortedWindow, interpolated
from barograph_modeler.maxima.sample import Floats

WINDOW: Final = 4000
"""Values whose tail probabilities are kept."""
PRIOR: Final = 200
"""Values that a right density would have, in place of others at the beginning."""
MIN_TAIL: Final = 1e-9
"""Values further out count as this."""
ALIKE: Final = 1000
"""Recent values that count, those predicted with the most similar spreads: a quarter of the WINDOW."""


class RecentTails:
    """The tail probabilities of recent values."""

    def __init__(self) -> None:
        self._window = SortedWindow(WINDOW)
        for one in range(PRIOR):
            self._window.add((one + 0.5) / PRIOR)

    def add(self, tail: float) -> None:
        """Add the probability that a value had of a larger one."""
        self._window.add(max(tail, MIN_TAIL))

    def quantile(self, share: float) -> float:
        """The tail probability below which this share of values was. share: between 0 and 1."""
        return _quantile(self._window.ordered, share)


class AlikeTails:
    """The tail probabilities of recent values, of which those count that were predicted with a similar spread.

    The runs of one program differ by 2 %, those of another are of works that nobody told apart: what the tail of the
    second is like tells nothing of the first.
    """

    def __init__(self) -> None:
        self._rows = np.zeros((WINDOW, 2))
        """Logarithms of spreads, and tail probabilities: a ring."""
        self._added = 0

    def add(self, spread: float, tail: float) -> None:
        """Add the probability that a value had of a larger one. spread: above 0, of what was predicted."""
        self._rows[self._added % WINDOW] = math.log(spread), max(tail, MIN_TAIL)
        self._added += 1

    def quantile(self, share: float, spread: float) -> float:
        """The tail probability below which this share of values was, of those with such a spread.

        share: between 0 and 1. spread: above 0.
        """
        spreads, tails = self._rows[: self._added].T
        if tails.size > ALIKE:
            tails = tails[np.argpartition(np.abs(spreads - math.log(spread)), ALIKE)[:ALIKE]]
        else:
            tails = np.concatenate([tails, (np.arange(PRIOR) + 0.5) / PRIOR])
        return _quantile(np.sort(tails), share)

    def copy(self) -> Self:
        """A copy."""
        other = type(self)()
        other._rows, other._added = self._rows.copy(), self._added
        return other


def _quantile(ordered: Sequence[float] | Floats, share: float) -> float:
    """The value below which a share is, of values in ascending order; in proportion to the smallest below that."""
    position = share * (len(ordered) + 1) - 1
    return interpolated(ordered, position) * min(position + 1, 1.0)
