"""What no limit has to exceed: the longest of recent runtimes, and requests where jobs end in time."""

from __future__ import annotations

import math
from typing import Final

from barograph_modeler.maxima.recent import SortedWindow

WINDOW: Final = 4000
"""Ended jobs that are taken into account."""
SHARE: Final = 0.2
"""Of the risk: a bound is exceeded by this share of jobs at most."""
GRACE_SECONDS: Final = 60.0
"""How much longer than requested jobs run that a scheduler ends: at least so much is allowed."""


class LimitBounds:
    """Learns how long jobs run, and whether they exceed their requests."""

    def __init__(self) -> None:
        self._seconds = SortedWindow(WINDOW)
        self._ratios = SortedWindow(WINDOW)

    def add(self, seconds: float, requested: float) -> None:
        """Add an ended job. requested: seconds; 0 or less if unknown."""
        self._seconds.add(seconds)
        if requested > 0:
            self._ratios.add(seconds / requested)

    def bound(self, risk: float, requested: float) -> float:
        """The largest limit for a job, in seconds; infinite while no job has ended.

        Of n jobs and one more, the last exceeds the longest with probability 1 / (n + 1), and a multiple of it as many
        times less often, if the tail is that of a Pareto distribution with a mean just infinite. Likewise of the
        ratios of runtimes to requests.
        """
        count = len(self._seconds.ordered)
        if not count:
            return math.inf
        longest = self._seconds.ordered[-1] * max(1 / (SHARE * risk * (count + 1)), 1.0)
        known = len(self._ratios.ordered)
        if requested <= 0 or not known:
            return max(longest, requested)
        rank = SHARE * risk * (known + 1)
        exceeded = max(self._ratios.at(known - max(rank, 1.0)), 1.0) * max(1 / rank, 1.0)
        return max(min(max(longest, requested), requested * exceeded), requested + GRACE_SECONDS)
