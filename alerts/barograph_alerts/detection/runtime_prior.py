"""Cold start: how long a workload never seen should take, from what the application took at other scales."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from scipy.special import stdtr, stdtrit

FREEDOM: Final = 4
"""Degrees of freedom of the tail beyond the 95 % limits: as heavy as that of the prior of `tolerance`."""
LIMIT: Final = float(stdtrit(FREEDOM, 0.975))
FROM_FEATURES: Final = "features"
"""The method of rows of `predictions` that were made of the run's own features."""
KAPPA: Final = 0.1
"""The calibrator's exponent: small, for there is one p-value a job and it may be very small."""


class RuntimePrior(NamedTuple):
    """A row of `predictions`: seconds that hold 95 % of runs and their median, from `runs` runs at `scales` scales.

    runs and scales are 0 where only other problems of the application are known.
    """

    lower_seconds: float
    expected_seconds: float
    upper_seconds: float
    runs: int
    scales: int

    @property
    def basis(self) -> str:
        """What it rests on, in words."""
        if not self.scales:
            return "scaling from other problems of the application"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return f"scaling from {runs} at {self.scales} scale{'s' * (self.scales > 1)}"

    def p_value(self, seconds: float) -> float:
        """How seldom a healthy run takes so long or longer.

        Logarithms are taken to follow Student's t with FREEDOM degrees of freedom about the median, whose 97.5 %
        quantile is the upper limit: 99.5 % are within 1.66 times the distance, where a normal distribution has 1.31.
        """
        reach = math.log(self.upper_seconds / self.expected_seconds)
        excess = math.log(seconds / self.expected_seconds)
        if reach <= 0:
            return 1.0 if excess <= 0 else 0.0
        return float(stdtr(FREEDOM, -LIMIT * excess / reach))


class RuntimeTest:
    """A test of the whole run: how long it takes, against what is foretold.

    While a job runs it has taken at least what has passed, so the p-value only falls and this is one test, however
    often one looks: it exceeds the risk in the end or never. A projection of the total may move; `take` says how.

    risk: between 0 and 1. margin: slowdown that does not matter, 0.05 is 5 %.
    """

    __slots__ = ("_margin", "_risk", "foretold", "seconds")

    def __init__(self, foretold: RuntimePrior, risk: float, margin: float) -> None:
        self.foretold = foretold
        self.seconds = math.nan
        self._risk = risk
        self._margin = margin

    def update(self, seconds: float) -> None:
        """Take how long the run takes at least, or will: the latest word counts. seconds: above 0."""
        self.seconds = seconds

    @property
    def slowdown(self) -> float:
        """Actual over foretold seconds; NaN before the first."""
        return self.seconds / self.foretold.expected_seconds

    @property
    def score(self) -> float:
        """log p over log risk, 0 before the first: above 1 alarms. At most 1 where the slowdown is below the margin."""
        if math.isnan(self.seconds):
            return 0.0
        score = math.log(max(self._p, 1e-300)) / math.log(self._risk)
        return score if self.slowdown >= 1 + self._margin else min(score, 1.0)

    @property
    def log_e(self) -> float:
        """Logarithm of KAPPA p**(KAPPA - 1), an e-value (Vovk and Wang 2021, section 2); 0 before the first."""
        if math.isnan(self.seconds):
            return 0.0
        return math.log(KAPPA) + (KAPPA - 1) * math.log(max(self._p, 1e-300))

    @property
    def _p(self) -> float:
        return self.foretold.p_value(self.seconds)
