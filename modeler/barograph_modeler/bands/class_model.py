"""One class of one workload: the window its band is fitted to, its moments, and its closed regimes."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from barograph_modeler.bands.moments import Blocks, Moments
from barograph_modeler.bands.regime import ClosedRegime, LevelChange, Regime
from barograph_modeler.maxima.band import Band, band_of_gev
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.predictive import Predictive
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.trust import judge

WINDOW: Final = 256
"""Values looked back on: 6 beyond each limit of the band, and 4 KiB. With everything else a class takes 10 kB
(`tests/benchmarks/test_modeler.py` measures it)."""
REFIT_SHARE: Final = 0.25
"""A class is worth another fit once this share of its window is new, so fits grow with the logarithm of a young
history and are one for every 64 values of an old one."""
REGIMES: Final = 8
"""ClosedRegime regimes kept of each class."""


class WindowedPredictive(Predictive):
    """A Predictive whose window can be read."""

    def __init__(self) -> None:
        super().__init__(window=WINDOW)

    @property
    def values(self) -> Floats:
        """The values held, ascending: a copy."""
        return np.array(self._recent.ordered, dtype=np.float64)


class ClassModel:
    """What is known of one class.

    Blocks of one, raw intervals, go into window and moments. A block of more goes into the moments only: its maximum
    is no interval, and among intervals it would lift the band; of its intervals the log does not know more.
    """

    __slots__ = ("_change", "bands", "fresh", "history", "moments", "regimes", "seconds", "since", "trusted", "until")

    def __init__(self) -> None:
        self.bands: tuple[Band, ...] = ()
        """As last fitted: the non-parametric one first, if there is one, then the GEV's."""
        self.trusted = False
        """Whether the GEV's fits by PWM and MOM agreed."""
        self.regimes: tuple[Regime, ...] = ()
        """ClosedRegime ones, oldest first."""
        self.seconds = 0.0
        """Time spent in this class, in all regimes."""
        self._open()

    def _open(self) -> None:
        self.history = WindowedPredictive()
        self.moments = Moments()
        self.since = self.until = math.nan
        self.fresh = 0
        self._change = LevelChange()

    @property
    def held(self) -> int:
        """Values in the window."""
        return min(self.history.count, WINDOW)

    @property
    def due(self) -> bool:
        """Whether enough of the window is new to matter."""
        return self.fresh >= max(1.0, REFIT_SHARE * self.held)

    @property
    def staleness(self) -> float:
        """Values learned since the last fit per value held: 0 right after it."""
        return self.fresh / max(1, self.held)

    def inside(self, values: Floats) -> int | None:
        """How many values the non-parametric band holds as it was last published; None where there is none."""
        for band in self.bands:
            if band.method != "gev":
                return int(((values >= band.lower) & (values <= band.upper)).sum())
        return None

    def learn(self, blocks: Blocks, ended_at: Floats) -> list[ClosedRegime]:
        """Learn blocks in the order they came; returns the regimes that changes among them have closed.

        ended_at: Unix seconds, one per block.
        """
        closed = []
        while (split := self._change.find(_single(blocks))) is not None:
            at = int(np.flatnonzero(blocks.counts == 1)[split])
            self._learn(blocks.select(slice(0, at)), ended_at[:at])
            level = self._change.level
            closed.append(ClosedRegime(self.close(float(ended_at[at])), level))
            blocks, ended_at = blocks.select(slice(at, None)), ended_at[at:]
        self._learn(blocks, ended_at)
        return closed

    def close(self, until: float) -> Regime:
        """End the present regime, keep it, and begin with nothing."""
        limits = [(b.lower, b.expected, b.upper) for b in self.bands if b.method != "gev"] or [(math.nan,) * 3]
        regime = Regime(self.since, until, self.moments, *limits[0])
        self.regimes = (*self.regimes, regime)[-REGIMES:]
        self._open()
        return regime

    def refit(self, seed: int) -> None:
        """Fit both bands to the window. seed: of the bootstrap that the trust in the GEV rests on."""
        self.fresh = 0
        self.trusted = False
        bands = [band] if (band := self.history.band()) is not None else []
        if self.held >= MINIMUM_SAMPLES:
            verdict = judge(self.history.values, seed=seed)
            self.trusted = verdict.trusted
            bands.append(band_of_gev(verdict.pwm, self.held))
        self.bands = tuple(bands)

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
