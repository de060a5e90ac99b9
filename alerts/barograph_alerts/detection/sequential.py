"""A sequential test of windows against a null hypothesis, with unknown time of change."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from barograph_modeler.maxima.ratio import log_ratio

KAPPA: Final = 0.5
"""The calibrator's exponent. A smaller one bets more on the smallest p-values, but those of a slowdown of 10 % are
moderate: of 1,000 simulated ones 0.5 detects 92 %; 0.4 detects 88 %, and large slowdowns one window sooner
(docs/engineer/alerts.md)."""
FLOOR: Final = 0.01
"""Lower bound of p-values, which limits the evidence of a window: a burst of three cannot alarm."""

EXCURSION: Final = 64
"""Windows of an excursion kept one by one."""
STEP: Final = 0.5
"""Least share of the variance that a step must explain."""


LAG: Final = 16
"""Windows after which those of a job are taken for independent."""
PRIOR_CORRELATION: Final = 0.2
PRIOR_PAIRS: Final = 10
"""The prior of the correlation of consecutive windows, with the weight of so many."""
MAX_CORRELATION: Final = 0.95
MAX_RESIDUALS: Final = 512
MAX_DIFFERENCE: Final = 3.0
"""A larger difference of windows, in means of those next to each other, is a disturbance, and counts as this."""
POWERS: Final = np.geomspace(1, 20, 16)


def log_bet(p: float) -> float:
    """Logarithm of the e-value KAPPA max(p, FLOOR)**(KAPPA - 1)."""
    return math.log(KAPPA) + (KAPPA - 1) * math.log(max(p, FLOOR))


class Residuals:
    """Log ratios of healthy windows, of which k of n are independent, and the p-values of others among them.

    With r the correlation of consecutive windows, k = n (1 - r) / (1 + r), and the p-value of an excess x is

        (1 + k (share of residuals >= x)) / (1 + k)

    r follows from the sums D of absolute differences of windows next to each other and LAG apart, which a change of
    level hardly moves: 1 - (D_1 / D_LAG)**2, as of normal noise that is independent after LAG.

    values: log ratios in any order. covered: k is that much larger, at most n, where a tolerance is for correlation.
    """

    __slots__ = ("_apart", "_covered", "_next", "_pairs", "_recent", "independent", "values")

    def __init__(self, values: Iterable[float], covered: float = 1.0) -> None:
        self.values = array("d", sorted(values))
        self.independent = (1 - PRIOR_CORRELATION) / (1 + PRIOR_CORRELATION)
        """Share of the windows, above 0, at most 1."""
        self._covered = covered
        self._recent: deque[float] = deque(maxlen=LAG)
        self._pairs, self._next, self._apart = 0, 0.0, 0.0

    def p_value(self, excess: float) -> float:
        """The conformal p-value of an excess.

        >>> round(Residuals([-0.1, 0.0, 0.1]).p_value(0.05), 2)
        0.56
        """
        n, share = len(self.values), min(1.0, self._covered * self.independent)
        return (1 + share * (n - bisect_left(self.values, excess))) / (1 + share * n)

    def power(self, tolerance: float) -> float:
        """The largest power, at least 1, with which bets on windows that are slower by the tolerance are fair.

        It is above 1 where the tolerance is beyond what windows differ by: such bets lose in healthy jobs. Bets on
        correlated windows are fair with this times `independent`, at most 1.
        """
        logs = np.array([log_bet(self.p_value(value - tolerance)) for value in self.values])
        fair = np.exp(np.outer(POWERS, logs)).mean(axis=1) <= 1
        return float(POWERS[fair][-1]) if fair.any() else 1.0

    def insert(self, value: float) -> None:
        """Add a residual, unless there are MAX_RESIDUALS."""
        if len(self.values) < MAX_RESIDUALS:
            insort(self.values, value)

    def shift(self, by: float) -> None:
        """Add a constant to all residuals."""
        self.values = array("d", (value + by for value in self.values))

    def follow(self, log_ratio: float) -> None:
        """Learn the correlation from the next window of the job."""
        if len(self._recent) == LAG:
            limit = MAX_DIFFERENCE * self._next / self._pairs if self._pairs else math.inf
            self._pairs += 1
            self._next += min(abs(log_ratio - self._recent[-1]), limit)
            self._apart += min(abs(log_ratio - self._recent[0]), limit)
            r = 1 - (self._next / self._apart) ** 2 if self._apart > 0 else 0.0
            r = (PRIOR_PAIRS * PRIOR_CORRELATION + self._pairs * r) / (PRIOR_PAIRS + self._pairs)
            r = min(max(r, 0.0), MAX_CORRELATION)
            self.independent = (1 - r) / (1 + r)
        self._recent.append(log_ratio)


class Sequential:
    """An e-process, mixed over all windows at which a change may have begun.

    Per window, p becomes e = (KAPPA max(p, FLOOR)**(KAPPA - 1))**power. p is super-uniform under the null hypothesis,
    and the integral of KAPPA p**(KAPPA - 1) over [0, 1] is 1, so E[e] <= 1 for a power of at most 1 (Vovk and Wang
    2021, Annals of Statistics 49(3), section 2). With weights w_s = 1 / (s (s + 1)), which sum to 1,

        M_t = e_t (M_{t-1} + w_t),   E_t = M_t + 1 / (t + 1)

    is the weighted mean of all products e_s ... e_t, and a supermartingale that starts at 1 where windows are
    independent. By Ville's inequality it ever exceeds 1 / alpha with probability at most alpha. Correlated windows have
    a smaller power (`Residuals.power`).

    Page's CUSUM of log e, the excursion, gives the begin of the change, and the actual and expected seconds from there
    to the strongest evidence.

    alpha: between 0 and 1. windows: how many tests of the same job had before that share alpha with this one, whose
    evidence was dropped: w_s goes on from there.
    """

    __slots__ = (
        "_actual",
        "_excursion",
        "_expected",
        "_log_m",
        "_peak",
        "_sum",
        "_threshold",
        "log_e",
        "peak_seconds",
        "started_at",
        "windows",
    )

    def __init__(self, alpha: float, windows: int = 0) -> None:
        self._threshold = math.log(1 / alpha)
        self.reset()
        self.windows = windows

    def reset(self) -> None:
        """Restart the test with the next window."""
        self.log_e = 0.0
        self.started_at = math.nan
        self.peak_seconds = (0.0, 0.0)
        self._log_m = -math.inf
        self.windows = 0
        self._sum = 0.0
        self._peak = -math.inf
        self._actual = self._expected = 0.0
        self._excursion: list[tuple[float, float, float]] = []

    @property
    def score(self) -> float:
        """log E over log(1 / alpha), at least 0; above 1 alarms."""
        return max(0.0, self.log_e / self._threshold)

    @property
    def quiet(self) -> bool:
        """Whether the excursion is empty: there is no evidence of a change."""
        return self._sum <= 0

    @property
    def slowdown(self) -> float:
        """Actual over expected seconds of the excursion; NaN before the first window."""
        actual, expected = self.peak_seconds
        return actual / expected if expected > 0 else math.nan

    def add(self, p: float, started_at: float, actual: float, expected: float, power: float = 1.0) -> None:
        """Add the next window: p-value, begin in Unix seconds, actual seconds, and expected seconds under the null."""
        log_e = power * log_bet(p)
        self.windows += 1
        t = self.windows
        self._log_m = log_e + _log_plus(self._log_m, -math.log(t * (t + 1)))
        self.log_e = _log_plus(self._log_m, -math.log(t + 1))
        if self._sum <= 0:
            self.started_at = started_at
            self._sum, self._peak, self._actual, self._expected = 0.0, -math.inf, 0.0, 0.0
            self._excursion.clear()
        if len(self._excursion) < EXCURSION:
            self._excursion.append((started_at, actual, expected))
        self._sum += log_e
        self._actual += actual
        self._expected += expected
        if self._sum > self._peak:
            self._peak, self.peak_seconds = self._sum, (self._actual, self._expected)

    def trim(self) -> None:
        """Remove windows before the change point from the front of the excursion."""
        first = change_point([abs(log_ratio(actual, expected)) for _, actual, expected in self._excursion])
        for _, actual, expected in self._excursion[:first]:
            self._actual -= actual
            self._expected -= expected
            self.peak_seconds = self.peak_seconds[0] - actual, self.peak_seconds[1] - expected
        del self._excursion[:first]
        self.started_at = self._excursion[0][0]


def change_point(values: Sequence[float]) -> int:
    """The index of the first value after the single upward step of a series; 0 if there is none.

    It is the split that explains the most variance, if it explains at least the share STEP and the mean before it is
    less than a third of the mean after it.

    >>> change_point([0.1, 0.2, 0.1, 0.6, 0.5, 0.6])
    3
    >>> change_point([0.4, 0.6, 0.5, 0.6, 0.5, 0.6])
    0
    """
    mean = math.fsum(values) / len(values)
    total = math.fsum((value - mean) ** 2 for value in values)
    best, gain = 0, STEP * total
    before = 0.0
    for k in range(1, len(values)):
        before += values[k - 1]
        low, high = before / k, (mean * len(values) - before) / (len(values) - k)
        explained = k * (low - mean) ** 2 + (len(values) - k) * (high - mean) ** 2
        if low < high / 3 and explained > gain:
            best, gain = k, explained
    return best


def _log_plus(a: float, b: float) -> float:
    high, low = (a, b) if a > b else (b, a)
    return high + math.log1p(math.exp(low - high))
