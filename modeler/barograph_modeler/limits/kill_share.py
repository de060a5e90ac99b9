"""The tail probability at which limits are set, so that the share of jobs killed is as asked.

A density is never quite right, least in its tail. Therefore a limit's tail probability is a quantile of the tail
probabilities that the runtimes of recent jobs had (conformal prediction with that as the score), and the share asked of
that quantile is steered by the integrated error (Gibbs and Candes 2021, NeurIPS 34; Angelopoulos, Candes and Tibshirani
2023, NeurIPS 36), which holds it on logs whose character changes.
"""

from __future__ import annotations

import math
from typing import Final

from barograph_modeler.maxima.recent import SortedWindow

WINDOW: Final = 4000
"""Ended jobs whose tail probabilities are kept."""
PRIOR: Final = 200
"""Values that a right density would have, in place of jobs at the beginning."""
GAIN: Final = 0.1
"""Relative change of the share per job killed too many or too few."""
MAX_ERROR: Final = 25.0
"""Jobs killed too many or too few that are made up for."""


class RecentTails:
    """The tail probabilities of recent runtimes."""

    def __init__(self) -> None:
        self._window = SortedWindow(WINDOW)
        for one in range(PRIOR):
            self._window.add((one + 0.5) / PRIOR)

    def add(self, tail: float) -> None:
        """Add the probability that an ended job had of a longer runtime than it had."""
        self._window.add(tail)

    def quantile(self, share: float) -> float:
        """The tail probability below which this share of jobs was. share: between 0 and 1."""
        position = share * (len(self._window.ordered) + 1) - 1
        if position < 0:
            return self._window.at(0) * (position + 1)
        return self._window.at(position)


class KillShare:
    """Steers the share of jobs killed at one risk. risk: between 0 and 1."""

    def __init__(self, risk: float) -> None:
        if not 0 < risk < 1:
            raise ValueError(f"risk is {risk}, expected a number between 0 and 1")
        self.risk = risk
        self._error = 0.0

    @property
    def share(self) -> float:
        """What to ask of RecentTails."""
        return min(self.risk * math.exp(-GAIN * self._error), 0.9)

    def learn(self, killed: bool) -> None:
        """An ended job ran longer than its limit, or not."""
        self._error = min(max(self._error + killed - self.risk, -MAX_ERROR), MAX_ERROR)
