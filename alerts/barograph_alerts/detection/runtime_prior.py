"""The test of the runtime of a whole run, against its history or a prediction from other scales."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from scipy.special import stdtr, stdtrit

from barograph_alerts.detection.alarm import Basis
from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.maxima.runtime import p_value

FREEDOM: Final = 4
"""Degrees of freedom of the tail beyond the 95 % limits, as in the prior of `tolerance`."""
LIMIT: Final = float(stdtrit(FREEDOM, 0.975))
FROM_FEATURES: Final = "features"
FROM_PROGRESS: Final = "progress"
"""Methods of rows of `predictions` made from the run's own features, and from its progress."""
KAPPA: Final = 0.1
"""The calibrator's exponent: small, since there is one p-value per job, which may be very small."""

VAGUE: Final = 10.0
"""Limits further apart than this ratio say nothing about a run."""


def counted_runs(runs: int) -> str:
    """So many runs, in words."""
    return "1 run" if runs == 1 else f"{runs} runs"


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
        return f"scaling from {counted_runs(self.runs)} at {self.scales} scale{'s' * (self.scales > 1)}"

    @property
    def scale(self) -> float:
        """Of Student's t of the logarithm of the runtime."""
        return max(0.0, log_ratio(self.upper_seconds, self.expected_seconds)) / LIMIT

    def p_value(self, seconds: float) -> float:
        """Probability that a healthy run takes this long or longer.

        Log runtimes are assumed to follow Student's t with FREEDOM degrees of freedom about the median, with the upper
        limit as 97.5 % quantile: 99.5 % are within 1.66 times the distance, against 1.31 for a normal distribution.
        """
        excess = log_ratio(seconds, self.expected_seconds)
        if self.scale <= 0:
            return 1.0 if excess <= 0 else 0.0
        return float(stdtr(FREEDOM, -excess / self.scale))


class RuntimeHistory(NamedTuple):
    """A row of `bands` of the kind runtime: median and 95 % limits in seconds of the next of `runs` healthy runs."""

    lower_seconds: float
    expected_seconds: float
    upper_seconds: float
    runs: int

    @property
    def basis(self) -> str:
        """The data of the limits, in words."""
        return counted_runs(self.runs)

    @property
    def vague(self) -> bool:
        """Whether its runs differ so much that the limits say nothing."""
        return not self.upper_seconds <= VAGUE * self.lower_seconds

    def p_value(self, seconds: float) -> float:
        """Probability that a healthy run takes this long or longer, with the prior of the spread between runs."""
        return p_value(seconds, self.expected_seconds, self.upper_seconds, self.runs)


class RuntimeTest:
    """A test of the runtime of a whole run against its history or its prediction.

    Elapsed time is a lower bound of the runtime, so the p-value only decreases while a job runs: repeated evaluation is
    still one test. A projected runtime may also decrease.

    risk: between 0 and 1. margin: slowdown that does not matter, 0.05 is 5 %.
    """

    __slots__ = ("_margin", "_risk", "prior", "seconds")

    def __init__(self, prior: RuntimePrior | RuntimeHistory, risk: float, margin: float) -> None:
        self.prior = prior
        self.seconds = math.nan
        self._risk = risk
        self._margin = margin

    def update(self, seconds: float) -> None:
        """Set the runtime, or its lower bound or projection. seconds: above 0."""
        self.seconds = seconds

    @property
    def by_history(self) -> bool:
        """Whether the run is compared with runs of its own workload."""
        return isinstance(self.prior, RuntimeHistory)

    @property
    def basis(self) -> Basis:
        """The reference, as alarms name it."""
        return "its runtimes" if self.by_history else "scaling"

    def outside(self, *, over: bool) -> bool:
        """Whether the runtime is outside the 95 % limits. over: whether it is final, not a lower bound."""
        return self.seconds > self.prior.upper_seconds or (over and self.seconds < self.prior.lower_seconds)

    @property
    def slowdown(self) -> float:
        """Actual over predicted seconds; NaN before the first update."""
        return self.seconds / self.prior.expected_seconds

    @property
    def is_small(self) -> bool:
        """Whether the slowdown is below the margin."""
        return self.slowdown < 1 + self._margin

    @property
    def score(self) -> float:
        """log p over log risk, 0 before the first update: above 1 alarms. At most 1 if the slowdown is below margin."""
        if math.isnan(self.seconds):
            return 0.0
        score = math.log(max(self._p, 1e-300)) / math.log(self._risk)
        return min(score, 1.0) if self.is_small else score

    @property
    def log_e(self) -> float:
        """Logarithm of the e-value KAPPA p**(KAPPA - 1) (Vovk and Wang 2021, section 2); 0 before the first update."""
        if math.isnan(self.seconds):
            return 0.0
        return math.log(KAPPA) + (KAPPA - 1) * math.log(max(self._p, 1e-300))

    @property
    def _p(self) -> float:
        return self.prior.p_value(self.seconds)
