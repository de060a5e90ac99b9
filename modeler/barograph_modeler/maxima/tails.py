"""Limits that a given share of values exceeds, though a density is never quite right, least in its tail.

The tail probability at which a limit is set is a quantile of the tail probabilities that recent values had, by what was
predicted of them: conformal prediction with that as the score.
"""

from __future__ import annotations

from typing import Final

from barograph_modeler.maxima.recent import SortedWindow

WINDOW: Final = 4000
"""Values whose tail probabilities are kept."""
PRIOR: Final = 200
"""Values that a right density would have, in place of others at the beginning."""
MIN_TAIL: Final = 1e-9
"""Values further out count as this."""


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
        position = share * (len(self._window.ordered) + 1) - 1
        if position < 0:
            return self._window.at(0) * (position + 1)
        return self._window.at(position)
