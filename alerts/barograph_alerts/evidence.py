"""The sequential score of one job: evidence, window by window, that it is slower than its history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from barograph_modeler.pace import MINIMUM_SHARE, Pace, Ratio, Window

ALPHA: Final = 0.01
MARGIN: Final = 0.05
MINIMUM_RESIDUALS: Final = 20
KAPPA: Final = 0.25
"""The calibrator's exponent. Smaller bets more on the very smallest p-values, which is where a slow job's are."""

Seconds: TypeAlias = tuple[float, float]
"""Actual and expected."""


class Evidence:
    """An e-process that starts at "healthy" and grows while windows come in slower than any healthy run explains.

    Null hypothesis: the log ratios of the job's windows are L + eps_w, where L, the pace of this run, is at most
    pace.tolerance(margin, alpha / 2), and eps_w is exchangeable with the residuals of the pace. Per window

        p = (1 + number of residuals >= log ratio - tolerance) / (1 + number of residuals)
        e = KAPPA p**(KAPPA - 1)

    p is super-uniform, and the integral of KAPPA p**(KAPPA - 1) over [0, 1] is 1, so E[e] <= 1 (Vovk and Wang 2021,
    Annals of Statistics 49(3), section 2). p >= 1 / (1 + n) bounds e. The slowdown may begin at any window s; with
    weights w_s = 1 / (s (s + 1)), which sum to 1,

        M_t = e_t (M_{t-1} + w_t),   E_t = M_t + 1 / (t + 1)

    is the weighted mean of all products e_s ... e_t, and a supermartingale that starts at 1 where windows are
    independent. By Ville's inequality it ever exceeds 2 / alpha with probability at most alpha / 2; the other half of
    alpha is spent on the tolerance. The score is log E_t / log(2 / alpha), at least 0; above 1 alarms.

    Windows are not quite independent: they share the finite residuals, and they are autocorrelated. Simulated lives of
    600 windows, judged by 8 runs of 30 windows with 2 % between and 3 % within runs, alarmed falsely in 0.1 %, 0.2 %
    and 0.7 % of jobs at lag-1 correlations of 0, 0.5 and 0.8 for an alpha of 1 %, in 0.9 % at 0.8 without a margin, and
    in 2.2 % at 0.95: most of alpha lies unused in the tolerance, which few healthy jobs come near. Jobs that ran at
    exactly the tolerance all their life alarmed in 0 %, 8 % and 79 % at 0, 0.5 and 0.8.

    alpha: bound on the probability that a healthy job ever alarms, between 0 and 1. margin: slowdown that does not
    matter, 0.05 is 5 %. Raises ValueError for other values.
    """

    def __init__(self, pace: Pace, alpha: float = ALPHA, margin: float = MARGIN) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}, expected a number between 0 and 1, both excluded")
        if not (margin >= 0 and math.isfinite(margin)):
            raise ValueError(f"margin is {margin}, expected a finite number of at least 0")
        self.pace = pace
        self.score = 0.0
        self.highest = 0.0
        self.alarmed_at: float | None = None
        self.windows = 0
        self._judges = pace.usable and pace.residuals.size >= MINIMUM_RESIDUALS
        self._tolerance = pace.tolerance(margin, alpha / 2) if self._judges else math.nan
        self._threshold = math.log(2 / alpha)
        self._log_m = -math.inf
        self._whole = (0.0, 0.0)
        self._excursion = _Excursion()

    @property
    def state(self) -> Literal["unknown", "healthy", "slow"]:
        """The verdict so far.

        unknown: the pace has too few runs or residuals, or no window could be compared yet. slow: the job has alarmed,
        and stays so to its end.
        """
        if self.windows == 0:
            return "unknown"
        return "healthy" if self.alarmed_at is None else "slow"

    @property
    def onset_at(self) -> float | None:
        """When the slowdown most likely began, in Unix seconds; None before an alarm."""
        return None if self.alarmed_at is None else self._excursion.started_at

    @property
    def slowdown(self) -> float:
        """Actual over expected seconds: of the whole job before an alarm, then of the windows from onset to the worst.

        1.34 is 34 % slower than the mean of the history. NaN before the first window that could be compared. Windows
        after the evidence has peaked, when a disturbance is over, do not count.
        """
        actual, expected = self._whole if self.alarmed_at is None else self._excursion.at_peak
        return actual / expected if expected > 0 else math.nan

    def add(self, window: Window) -> None:
        """Take the job's next window. Where less than half of it is of known classes it is passed over.

        `windows` counts those that were judged.
        """
        ratio = self.pace.log_ratio(window)
        if not self._judges or ratio.share < MINIMUM_SHARE or math.isnan(ratio.log):
            return
        self.windows += 1
        self._whole = _plus(self._whole, ratio)
        log_e = self._log_e(ratio.log)
        t = self.windows
        self._log_m = log_e + float(np.logaddexp(self._log_m, -math.log(t * (t + 1))))
        log_evidence = float(np.logaddexp(self._log_m, -math.log(t + 1)))
        self.score = max(0.0, log_evidence / self._threshold)
        self.highest = max(self.highest, self.score)
        if self.alarmed_at is None and self._excursion.sum <= 0:
            self._excursion = _Excursion(window.started_at)
        self._excursion.add(log_e, ratio)
        if self.score > 1 and self.alarmed_at is None:
            self.alarmed_at = window.ended_at

    def _log_e(self, log_ratio: float) -> float:
        residuals = self.pace.residuals
        as_slow = residuals.size - int(np.searchsorted(residuals, log_ratio - self._tolerance, side="left"))
        return math.log(KAPPA) + (KAPPA - 1) * math.log((1 + as_slow) / (1 + residuals.size))


@dataclass
class _Excursion:
    """The running sum of log e since it last fell to 0 (Page's CUSUM): where a slowdown began and was worst."""

    started_at: float = math.nan
    sum: float = 0.0
    peak: float = -math.inf
    so_far: Seconds = (0.0, 0.0)
    at_peak: Seconds = (0.0, 0.0)

    def add(self, log_e: float, ratio: Ratio) -> None:
        self.sum += log_e
        self.so_far = _plus(self.so_far, ratio)
        if self.sum > self.peak:
            self.peak, self.at_peak = self.sum, self.so_far


def _plus(seconds: Seconds, ratio: Ratio) -> Seconds:
    return seconds[0] + ratio.actual_seconds, seconds[1] + ratio.expected_seconds
