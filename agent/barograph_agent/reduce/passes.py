"""How often a program's loop has been passed through, where a pass has several intervals, or there are others."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

MIN_PASSES: Final = 7
"""From which on a site is in a loop."""
MIN_TIME: Final = 0.5
"""Share of the time in loops that ends at sites which come equally often."""
SAME: Final = 0.02
"""Counts within this share of another one are equal, and those within EDGE: a loop is entered and left somewhere."""
EDGE: Final = 2
MAX_SITES: Final = 2048
"""Sites that are counted: as many as a ring has."""


class Passes:
    """Counts and times of the intervals of one rank, by the site at their end.

    By classes, which have the site before too, a branch in the loop would make several of an end that comes once.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._seconds: dict[int, float] = {}

    def add(self, sites: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]) -> None:
        """Intervals that end at these sites and have taken so long."""
        found, which, counts = np.unique(sites, return_inverse=True, return_counts=True)
        sums = np.bincount(which, seconds, len(found))
        for site, count, total in zip(found.tolist(), counts.tolist(), sums.tolist(), strict=True):
            if site in self._counts or len(self._counts) < MAX_SITES:
                self._counts[site] = self._counts.get(site, 0) + count
                self._seconds[site] = self._seconds.get(site, 0.0) + total

    def number(self) -> int:
        """Passes of the loop that most time of loops is in; 0 if there is none, or each interval is a pass.

        >>> passes = Passes()
        >>> passes.add(np.array([1, *[2, 3, 4] * 100]), np.ones(301))
        >>> passes.number()
        100
        """
        counts = np.array(list(self._counts.values()))
        seconds = np.array([self._seconds[site] for site in self._counts])
        loops = counts >= MIN_PASSES
        counts, seconds, seen = counts[loops], seconds[loops], counts.sum()
        if not len(counts):
            return 0
        same = np.abs(counts - counts[:, None]) <= np.maximum(SAME * counts, EDGE)[:, None]
        times = same @ seconds
        best = int(times.argmax())
        if times[best] < MIN_TIME * seconds.sum():
            return 0
        number = int(counts[same[best]].max())
        return number if number < (1 - SAME) * seen else 0
