"""Limits that a given share of values exceeds, though a density is never quite right, least in its tail.

The tail probability at which a limit is set is a quantile of the tail probabilities that recent values had, by what was
predicted of them: conformal prediction with that as the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Self

import numpy as np

from barograph_modeler.maxima.recent import interpolated
from barograph_modeler.maxima.runtime import MINIMUM_RUNS
from barograph_modeler.maxima.sample import Floats

WINDOW: Final = 4000
"""Values whose tail probabilities are kept."""
PRIOR: Final = 20
"""Values that a right density would have, in place of others at the beginning."""
MIN_TAIL: Final = 1e-9
"""Values further out count as this."""
BOUND_SHARE: Final = 0.2
"""Of the risk: a bound of limits is exceeded by this share of values at most."""
ALIKE: Final = 1000
"""Recent values that count, those predicted with the most similar spreads: a quarter of the WINDOW."""


class AlikeTails:
    """The tail probabilities of recent values, of which those count that were predicted from as many runs, 0, 1, 2, or
    MINIMUM_RUNS and more, and with a similar spread.

    The runs of one program differ by 2 %, those of another are of works that nobody told apart: what the tail of the
    second is like tells nothing of the first. Nor does the next of many runs tell anything of a second one.
    """

    def __init__(self) -> None:
        self._rows = np.zeros((WINDOW, 4))
        """Logarithms of spreads, tail probabilities, values, and numbers of runs: a ring."""
        self._added = 0

    def add(self, spread: float, tail: float, value: float, runs: int = MINIMUM_RUNS) -> None:
        """Add a value, and the probability that it had of a larger one.

        spread: above 0, of what was predicted. runs: behind that; 0 where all were of other work.
        """
        self._rows[self._added % WINDOW] = math.log(spread), max(tail, MIN_TAIL), value, min(runs, MINIMUM_RUNS)
        self._added += 1

    def quantile(self, share: float, spread: float, runs: int = MINIMUM_RUNS) -> float:
        """The tail probability below which this share of values was, of those with so many runs and such a spread.

        share: between 0 and 1. spread: above 0. runs: from 0.
        """
        spreads, tails = self._of(runs)
        if tails.size > ALIKE:
            tails = tails[np.argpartition(np.abs(spreads - math.log(spread)), ALIKE)[:ALIKE]]
        else:
            tails = np.concatenate([tails, (np.arange(PRIOR) + 0.5) / PRIOR])
        return _quantile(np.sort(tails), share)

    def supported_risk(self, runs: int) -> float:
        """The smallest probability of exceeding a limit that can be seen: of n values and one more, the last is the
        largest with probability 1 / (n + 1). runs: behind a prediction; or the values like it, where these are more."""
        return 1 / (1 + max(runs, min(len(self._of(runs)[1]), ALIKE)))

    def _of(self, runs: int) -> tuple[Floats, Floats]:
        """Logarithms of spreads and tail probabilities of values with so many runs."""
        rows = self._rows[: self._added]
        spreads, tails, *_ = rows[rows[:, 3] == min(runs, MINIMUM_RUNS)].T
        return spreads, tails

    def bound(self, share: float) -> float:
        """What a value exceeds with at most BOUND_SHARE of a probability; infinite while there is none.

        Of n values and one more, the last exceeds the largest with probability 1 / (n + 1), and a multiple of it as
        many times less often, if the tail is that of a Pareto distribution with a mean just infinite.
        """
        values = self._rows[: self._added, 2]
        return (
            float(values.max() * max(1 / (BOUND_SHARE * share * (values.size + 1)), 1.0)) if values.size else math.inf
        )

    def copy(self) -> Self:
        """A copy."""
        other = type(self)()
        other._rows, other._added = self._rows.copy(), self._added
        return other


def _quantile(ordered: Sequence[float] | Floats, share: float) -> float:
    """The value below which a share is, of values in ascending order; in proportion to the smallest below that."""
    position = share * (len(ordered) + 1) - 1
    return interpolated(ordered, position) * min(position + 1, 1.0)
