"""What held-out runs of an application show of its predictions: weights of models, and how wide intervals must be.

The largest scale of each problem is predicted from the lower half of its scales.
- Weights: stacking, for problems of one size.
- Width: split-conformal. Runs are measured in half widths of the interval; the factors of the lower and the upper limit
  are 97.5 % quantiles of these, together with a prior of PRIOR_PROBLEMS problems for which WIDENED is right. Problems
  known at two scales, and at more, have factors of their own: two scales do not show where a curve turns, and runs
  beyond them are rather slower than predicted than faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.answer import TAIL
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.sizes.stacking import stack

CURVES: Final = "curves of the size"
AMDAHL: Final = "Amdahl's law"
OVERHEAD: Final = "Amdahl's law with overhead"
LINE: Final = "line in logarithms"
PRIOR: Final = {CURVES: 8.0, AMDAHL: 0.5, OVERHEAD: 0.5, LINE: 1.0}
"""Prior weights of the models, in held-out problems."""
SATURATION: Final = "saturating curve"
SATURATED: Final = {**PRIOR, SATURATION: 30.0}
"""Prior weights where a time does not fall with more ranks, and follows a saturating curve."""
MIN_CURVES: Final = 0.2
"""Least weight of the curves beside laws: of synthetic programs whose time stops falling, the limits hold 75 instead of
58 % of the runs on eight times the ranks, and laws that go on are predicted as before."""
LEVEL: Final = "level"
UNSHOWN_GROWTH: Final = {CURVES: 1.0, LEVEL: 9.0}
"""Weights where a time grew between two scales of which one was run once."""
PRIOR_PROBLEMS: Final = 5.0
MAX_FACTOR: Final = 4.0
MAX_SCORED_RUNS: Final = 16
"""Newest runs of a problem that are measured."""


class Widening(NamedTuple):
    """Factors by which the half widths of an interval are multiplied."""

    below: float
    above: float


class Scales(StrEnum):
    """How many scales of a problem a prediction is made from."""

    FEW = "two at most"
    MORE = "three or more"

    @classmethod
    def of(cls, scales: int) -> Scales:
        """The case of a number of scales."""
        return cls.FEW if scales <= 2 else cls.MORE


WIDENED: Final[Mapping[Scales, Widening]] = {Scales.FEW: Widening(1.8, 2.7), Scales.MORE: Widening(1.8, 1.4)}
"""The factors without evidence: split-conformal, from public runs of other applications (docs/engineer/scaling.md)."""
MIN_WIDENED: Final = Widening(1.0, 1.3)
"""Smallest factors: the largest scale of a history is nearer than many scales that are asked for."""


class HeldOutScale(NamedTuple):
    """A scale that was left out: its prediction by each model, the log seconds of its runs, (runs,), the number of
    scales that it was predicted from, and the merits of the models there."""

    models: Mapping[str, Mixture]
    log_seconds: Floats
    scales: int
    merits: Mapping[str, float] = {}


class Calibration(NamedTuple):
    """weights: of the models of one size, with sum 1; saturated: where a saturating curve is among them. widenings: of
    intervals. problems: number held out."""

    weights: Mapping[str, float]
    saturated: Mapping[str, float]
    widenings: Mapping[Scales, Widening]
    problems: int

    @classmethod
    def of(cls, held_out: Iterable[HeldOutScale]) -> Calibration:
        """From one scale of each problem; none of them gives the priors."""
        every = list(held_out)
        densities = [
            {name: model.log_density(float(np.median(one.log_seconds))) for name, model in one.models.items()}
            for one in every
        ]
        found = cls(stack(densities, PRIOR), stack(densities, SATURATED), WIDENED, len(every))
        widenings = {
            case: _widening([found.distances(one) for one in every if Scales.of(one.scales) is case], WIDENED[case])
            for case in Scales
        }
        return found._replace(widenings=widenings)

    def weights_of(self, models: Mapping[str, Mixture]) -> Mapping[str, float]:
        """The weights of the models of one size that answer a question."""
        if LEVEL in models:
            return UNSHOWN_GROWTH
        return self.saturated if SATURATION in models else self.weights

    def distances(self, one: HeldOutScale) -> Floats:
        """Distances of runs from the median, in half widths of the interval on their side; below 0 for faster runs."""
        _, mixture = join(one.models, self.weights_of(one.models), one.merits)
        lower, middle, upper = mixture.quantiles([TAIL, 0.5, 1 - TAIL]).tolist()
        y = one.log_seconds[-MAX_SCORED_RUNS:]
        return np.asarray(np.where(y > middle, (y - middle) / (upper - middle), (y - middle) / (middle - lower)))


def join(
    models: Mapping[str, Mixture], weights: Mapping[str, float], merits: Mapping[str, float] = {}
) -> tuple[dict[str, float], Mixture]:
    """Weights of models, times their merits, scaled to sum 1, and the mixture of the models.

    A law that was right so far ends where work no longer divides: the curves, which may turn, keep MIN_CURVES.
    """
    given = {name: weights[name] * merits.get(name, 1.0) for name in models}
    total = sum(given.values())
    shares = {name: one / total for name, one in given.items()}
    if LEVEL not in shares and shares.get(CURVES, 1.0) < MIN_CURVES:
        rest = (1 - MIN_CURVES) / (1 - shares[CURVES])
        shares = {name: MIN_CURVES if name == CURVES else rest * one for name, one in shares.items()}
    return shares, Mixture.joined([(shares[name], one) for name, one in models.items()])


def _widening(problems: list[Floats], prior: Widening) -> Widening:
    return Widening(
        _factor([-distances for distances in problems], prior.below, MIN_WIDENED.below),
        _factor(problems, prior.above, MIN_WIDENED.above),
    )


def _factor(problems: list[Floats], prior: float, least: float) -> float:
    factors = np.geomspace(least, MAX_FACTOR, 100)
    inside = PRIOR_PROBLEMS * ndtr(-ndtri(TAIL) * factors / prior)
    for distances in problems:
        inside += (distances[:, None] <= factors).mean(axis=0)
    reached = inside >= (1 - TAIL) * (PRIOR_PROBLEMS + len(problems))
    return float(factors[np.argmax(reached)] if reached.any() else factors[-1])
