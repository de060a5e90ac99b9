"""A sequential test of windows against a null hypothesis, with unknown time of change."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

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


def p_value(residuals: Sequence[float], excess: float) -> float:
    """The conformal p-value of `excess` among ascending residuals: (1 + number of them >= excess) / (1 + number).

    >>> p_value([-0.1, 0.0, 0.1], 0.05)
    0.5
    """
    n = len(residuals)
    return (1 + n - bisect_left(residuals, excess)) / (1 + n)


class Sequential:
    """An e-process, mixed over all windows at which a change may have begun.

    Per window, p becomes e = KAPPA max(p, FLOOR)**(KAPPA - 1). p is super-uniform under the null hypothesis, and the
    integral of KAPPA p**(KAPPA - 1) over [0, 1] is 1, so E[e] <= 1 (Vovk and Wang 2021, Annals of Statistics 49(3),
    section 2). With weights w_s = 1 / (s (s + 1)), which sum to 1,

        M_t = e_t (M_{t-1} + w_t),   E_t = M_t + 1 / (t + 1)

    is the weighted mean of all products e_s ... e_t, and a supermartingale that starts at 1 where windows are
    independent. By Ville's inequality it ever exceeds 1 / alpha with probability at most alpha.

    Page's CUSUM of log e, the excursion, gives the begin of the change, and the actual and expected seconds from there
    to the strongest evidence.

    alpha: between 0 and 1.
    """

    __slots__ = (
        "_actual",
        "_excursion",
        "_expected",
        "_log_m",
        "_peak",
        "_sum",
        "_t",
        "_threshold",
        "log_e",
        "peak_seconds",
        "started_at",
    )

    def __init__(self, alpha: float) -> None:
        self._threshold = math.log(1 / alpha)
        self.reset()

    def reset(self) -> None:
        """Restart the test with the next window."""
        self.log_e = 0.0
        self.started_at = math.nan
        self.peak_seconds = (0.0, 0.0)
        self._log_m = -math.inf
        self._t = 0
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

    def add(self, p: float, started_at: float, actual: float, expected: float) -> None:
        """Add the next window: p-value, begin in Unix seconds, actual seconds, and expected seconds under the null."""
        log_e = math.log(KAPPA) + (KAPPA - 1) * math.log(max(p, FLOOR))
        self._t += 1
        t = self._t
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
