"""The test of a whole run without history, against the runtime predicted from other scales of its application."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from scipy.special import stdtr, stdtrit

FREEDOM: Final = 4
"""Degrees of freedom of the tail beyond the 95 % limits, as in the prior of `tolerance`."""
LIMIT: Final = float(stdtrit(FREEDOM, 0.975))
FROM_FEATURES: Final = "features"
"""The method of rows of `predictions` made from the run's own features."""
KAPPA: Final = 0.1
"""The calibrator's exponent: small, since there is one p-value per job, which may be very small."""


class RuntimePrior(NamedTuple):
    """A row of `predictions`: median and 95 % limits in seconds, from `runs` runs at `scales` scales.

    runs and scales are 0 if only other problems of the application have run.
    """

    lower_seconds: float
    expected_seconds: float
    upper_seconds: float
    runs: int
    scales: int

    @property
    def basis(self) -> str:
        """The data of the prediction, in words."""
        if not self.scales:
            return "scaling from other problems of the application"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return f"scaling from {runs} at {self.scales} scale{'s' * (self.scales > 1)}"

    def p_value(self, seconds: float) -> float:
        """Probability that a healthy run takes this long or longer.

        Log runtimes are assumed to follow Student's t with FREEDOM degrees of freedom about the median, with the upper
        limit as 97.5 % quantile: 99.5 % are within 1.66 times the distance, against 1.31 for a normal distribution.
        """
        reach = math.log(self.upper_seconds / self.expected_seconds)
        excess = math.log(seconds / self.expected_seconds)
        if reach <= 0:
            return 1.0 if excess <= 0 else 0.0
        return float(stdtr(FREEDOM, -LIMIT * excess / reach))


class RuntimeTest:
    """A test of the runtime of a whole run against its prediction.

    Elapsed time is a lower bound of the runtime, so the p-value only decreases while a job runs: repeated evaluation is
    still one test. A projected runtime may also decrease.

    risk: between 0 and 1. margin: slowdown that does not matter, 0.05 is 5 %.
    """

    __slots__ = ("_margin", "_risk", "prior", "seconds")

    def __init__(self, prior: RuntimePrior, risk: float, margin: float) -> None:
        self.prior = prior
        self.seconds = math.nan
        self._risk = risk
        self._margin = margin

    def update(self, seconds: float) -> None:
        """Set the runtime, or its lower bound or projection. seconds: above 0."""
        self.seconds = seconds

    @property
    def slowdown(self) -> float:
        """Actual over predicted seconds; NaN before the first update."""
        return self.seconds / self.prior.expected_seconds

    @property
    def score(self) -> float:
        """log p over log risk, 0 before the first update: above 1 alarms. At most 1 if the slowdown is below margin."""
        if math.isnan(self.seconds):
            return 0.0
        score = math.log(max(self._p, 1e-300)) / math.log(self._risk)
        return score if self.slowdown >= 1 + self._margin else min(score, 1.0)

    @property
    def log_e(self) -> float:
        """Logarithm of the e-value KAPPA p**(KAPPA - 1) (Vovk and Wang 2021, section 2); 0 before the first update."""
        if math.isnan(self.seconds):
            return 0.0
        return math.log(KAPPA) + (KAPPA - 1) * math.log(max(self._p, 1e-300))

    @property
    def _p(self) -> float:
        return self.prior.p_value(self.seconds)
