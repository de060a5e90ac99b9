"""How much runs of like work differ in what they communicate: learned from the runs of a group and its application."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from scipy.special import stdtrit

from barograph_modeler.recognition.signature import QUANTITIES

PRIOR_SPREAD: Final = 0.015
"""Standard deviation of the logarithms before any run is known: with it the second run of a work may differ by 0.11."""
PRIOR_RUNS: Final = 4
"""The weight of the prior, in runs."""
GROUP_PRIOR_RUNS: Final = 8
"""The weight of the application's spread in that of a group."""
MAX_RUNS: Final = 64
"""Runs remembered; earlier ones fade."""
MIN_SPREAD: Final = 0.002
"""Smaller spreads are not believed: startup and loop have another share in each run."""
MAX_SPREAD: Final = 0.1
"""Larger spreads of an application are not believed: such traffic differs by chance, and tells nothing."""
MAX_FACTOR: Final = 1.5
"""The spread of a group is at most so many times that of its application: else one with two works would take others."""
RISK: Final = 4e-3
"""Probability that a run of like work is found to differ in one quantity, at one look."""
MAX_DEVIATION: Final = 3.0
"""Deviations above so many standard deviations count as if they had so many: a mixed group must not hide what it is."""


class Difference(NamedTuple):
    """The quantity in which two runs differ most, by how many times, and that over the tolerance."""

    what: str
    ratio: float
    excess: float = 1.0

    def __str__(self) -> str:
        """In words.

        >>> str(Difference("bytes of messages", 2.31))
        '2.3 times the bytes of messages per interval'
        """
        return f"{self.ratio:.2g} times the {self.what} per interval"


class Spread:
    """The spread of each of some quantities between runs of like work, as the standard deviation of its logarithm.

    s^2 = (n0 s0^2 + sum of d_i^2 i / (i + 1)) / (n0 + n), where d_i is how far a run is from the mean of i earlier
    ones of its group, and s0 the spread of `parent`, or a prior.
    """

    def __init__(
        self, parent: Spread | None = None, names: Sequence[str] = QUANTITIES, prior: float = PRIOR_SPREAD
    ) -> None:
        self._parent = parent
        self._names: Sequence[str] = names if parent is None else parent._names
        self._prior = prior
        self._runs = 0.0
        self._squares = [0.0] * len(self._names)

    def spread(self, quantity: int) -> float:
        """The standard deviation of one of the quantities."""
        before, weight = self._prior, PRIOR_RUNS
        if self._parent is not None:
            before, weight = self._parent.spread(quantity), GROUP_PRIOR_RUNS
        found = math.sqrt((weight * before**2 + self._squares[quantity]) / (weight + self._runs))
        limit = MAX_SPREAD if self._parent is None else MAX_FACTOR * before
        return min(max(found, MIN_SPREAD), limit)

    @property
    def _freedom(self) -> float:
        return self._runs + (self._parent._freedom if self._parent is not None else PRIOR_RUNS)

    def difference(self, ratios: Sequence[float], runs: float, others: float = 1.0) -> Difference:
        """How the mean of `others` runs differs from that of so many of a group. Its excess is above 1 if it does.

        The tolerance is a prediction interval of Student's t.
        """
        reach = float(stdtrit(self._freedom, 1 - RISK / 2)) * math.sqrt(1 / max(others, 1.0) + 1 / max(runs, 1.0))
        excess = [abs(log) / (reach * self.spread(i)) for i, log in enumerate(ratios)]
        most = max(range(len(excess)), key=excess.__getitem__)
        return Difference(self._names[most], math.exp(ratios[most]), excess[most])

    def learn(self, ratios: Sequence[float], runs: float) -> None:
        """Learn from a run that is known to do the same as `runs` earlier ones, also in `parent`."""
        fade = min(1.0, (MAX_RUNS - 1) / self._runs) if self._runs else 1.0
        limits = [(MAX_DEVIATION * self.spread(i)) ** 2 for i in range(len(self._names))]
        squares = [min(log * log * runs / (runs + 1), limit) for log, limit in zip(ratios, limits, strict=True)]
        self._squares = [fade * old + new for old, new in zip(self._squares, squares, strict=True)]
        self._runs = fade * self._runs + 1
        if self._parent is not None:
            self._parent.learn(ratios, runs)
