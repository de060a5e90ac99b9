"""The model of one call-site class: a window of values, exact moments, bands, and closed regimes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.bands.moments import Blocks, Moments
from barograph_modeler.bands.regime import LevelChange, Regime
from barograph_modeler.maxima.band import GEV_METHODS, Band, band_of_gev, band_of_replicas
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.predictive import Predictive
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.trust import judge_all

WINDOW: Final = 256
"""Values in the window: 6 lie beyond each limit of the band. They take 4 KiB, a whole class 10 kB
(`tests/benchmarks/test_modeler.py`)."""
REFIT_SHARE: Final = 0.25
"""A class is refitted once this share of its window is new: the number of fits grows with the logarithm of a short
history, and is one per 64 values of a long one."""
REGIMES: Final = 8
"""Closed regimes kept per class."""


class GevFit(NamedTuple):
    """What a refit of a window takes its time for: whether PWM and MOM agree, and the bands of GEV and bootstrap."""

    trusted: bool
    bands: tuple[Band, ...]


def fit_gev(values: Floats, seed: int) -> GevFit:
    """Fit the GEV to a window, without bands if it has few values. seed: of the bootstrap."""
    return fit_gevs([values], seed)[0]


def fit_gevs(windows: Sequence[Floats], seed: int) -> list[GevFit]:
    """`fit_gev` of each window, with the same results: those of one size are fitted together, which is faster."""
    fits, of_size = [GevFit(False, ())] * len(windows), dict[int, list[int]]()
    for number, values in enumerate(windows):
        if values.size >= MINIMUM_SAMPLES:
            of_size.setdefault(values.size, []).append(number)
    for size, numbers in of_size.items():
        verdicts = judge_all(np.stack([windows[number] for number in numbers]), seed=seed)
        for number, verdict in zip(numbers, verdicts, strict=True):
            bands = band_of_gev(verdict.pwm, size), band_of_replicas(verdict.replicas, size)
            fits[number] = GevFit(verdict.trusted, bands)
    return fits


class ClassModel:
    """Window, moments, bands and closed regimes of one class.

    Blocks of one interval enter window and moments. Larger blocks enter the moments only: the log has their sums and
    extremes, and a block maximum among raw intervals would raise the band.
    """

    __slots__ = ("_change", "bands", "fresh", "history", "moments", "regimes", "seconds", "since", "trusted", "until")

    def __init__(self) -> None:
        self.bands: tuple[Band, ...] = ()
        """Of the last fit: the non-parametric band first, if any, then those of the GEV and of its bootstrap."""
        self.trusted = False
        """Whether the PWM and MOM fits of the GEV agreed."""
        self.regimes: tuple[Regime, ...] = ()
        """Closed regimes, oldest first."""
        self.seconds = 0.0
        """Total time in this class, over all regimes."""
        self._open()

    def _open(self) -> None:
        self.history = Predictive(window=WINDOW)
        self.moments = Moments()
        self.since = self.until = math.nan
        self.fresh = 0
        self._change = LevelChange()

    @property
    def held(self) -> int:
        """Number of values in the window."""
        return min(self.history.count, WINDOW)

    @property
    def due(self) -> bool:
        """Whether enough of the window is new for a refit."""
        return self.fresh >= max(1.0, REFIT_SHARE * self.held)

    @property
    def staleness(self) -> float:
        """Values learned since the last fit, per value in the window."""
        return self.fresh / max(1, self.held)

    def inside(self, values: Floats) -> int | None:
        """How many of the values lie inside the last published non-parametric band; None without a band."""
        band = self._judged
        return None if band is None else int(((values >= band.lower) & (values <= band.upper)).sum())

    @property
    def _judged(self) -> Band | None:
        """The non-parametric band of the last fit."""
        return next((band for band in self.bands if band.method not in GEV_METHODS), None)

    def learn(self, blocks: Blocks, ended_at: Floats) -> list[Regime]:
        """Learn blocks in order of arrival; returns the regimes closed by changes of level among them.

        ended_at: Unix seconds, one per block.
        """
        closed = []
        while (split := self._change.find(_single(blocks))) is not None:
            at = int(np.flatnonzero(blocks.counts == 1)[split])
            self._learn(blocks.select(slice(0, at)), ended_at[:at])
            closed.append(self.close(float(ended_at[at]), self._change.level))
            blocks, ended_at = blocks.select(slice(at, None)), ended_at[at:]
        self._learn(blocks, ended_at)
        return closed

    def close(self, until: float, next_level: float = math.nan) -> Regime:
        """Close the current regime, keep it, and start a new one without values."""
        band = self._judged
        limits = (math.nan,) * 3 if band is None else (band.lower, band.expected, band.upper)
        regime = Regime(self.since, until, self.moments, *limits, next_level)
        self.regimes = (*self.regimes, regime)[-REGIMES:]
        self._open()
        return regime

    def refit(self, seed: int) -> None:
        """Fit all bands to the window. seed: of the bootstrap."""
        self.publish(fit_gev(self.window(), seed))

    def window(self) -> Floats:
        """The window, to be fitted by fit_gev, perhaps elsewhere: what is learned from now on is new."""
        self.fresh = 0
        return self.history.values

    def publish(self, fit: GevFit) -> None:
        """Make a fit of the current regime's window, and the band of its present values, those of the class."""
        band = self.history.band()
        self.trusted = fit.trusted
        self.bands = fit.bands if band is None else (band, *fit.bands)

    def _learn(self, blocks: Blocks, ended_at: Floats) -> None:
        if not ended_at.size:
            return
        if not self.moments.count:
            self.since = float(ended_at[0])
        self.until = float(ended_at[-1])
        single = _single(blocks)
        self.history.learn(single)
        self.moments.add(blocks)
        self.fresh += single.size
        self.seconds += float(blocks.sums.sum())


def _single(blocks: Blocks) -> Floats:
    values: Floats = blocks.sums[blocks.counts == 1]
    return values
