"""The usual length of the runs of a workload, in sync points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

EQUAL: Final = 1.02
"""Numbers of sync points within this ratio count as equal."""
MOST: Final = 0.5
"""Share of the runs that must be equally long for that to be the usual length."""


class Length(NamedTuple):
    """Limits of the number of sync points of usual runs, both included."""

    lower: float
    upper: float

    @classmethod
    def of_runs(cls, points: Sequence[int]) -> Self:
        """The usual length of runs with so many sync points, newest last.

        It is the one that at least MOST of them have, the newest of two; if there is none, as where programs iterate
        until something converges, all lengths that occurred. Raises ValueError for no runs.

        >>> Length.of_runs([1000, 2000, 1000]).has(2000)
        False
        >>> Length.of_runs([1000, 1300, 1150]).has(1200)
        True
        """
        if not points:
            raise ValueError("no runs, expected at least one")
        most, usual = 0, points[-1]
        for one in reversed(points):
            if (count := sum(one / EQUAL <= other <= one * EQUAL for other in points)) > most:
                most, usual = count, one
        if most >= MOST * len(points):
            return cls(usual / EQUAL, usual * EQUAL)
        return cls(min(points) / EQUAL, max(points) * EQUAL)

    def has(self, points: int) -> bool:
        """Whether a run with so many sync points is as long."""
        return self.lower <= points <= self.upper
