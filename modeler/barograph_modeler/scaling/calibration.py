"""How wide the interval of a prediction must be, by held-out runs of the application.

The largest scale of each problem is predicted from the lower half of its scales. Runs are measured in half widths of
the interval; the factors of the lower and the upper limit are 97.5 % quantiles of these, together with a prior of
PRIOR_PROBLEMS problems for which WIDENED is right. Problems known at two scales, and at more, have factors of their own
(Mondrian conformal prediction): two scales do not show where a curve turns, and runs beyond them are rather slower than
predicted than faster.
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
    """A scale that was left out: its prediction, log seconds of its runs, (runs,), and the number of scales that it was
    predicted from."""

    predicted: Mixture
    log_seconds: Floats
    scales: int


class Calibration(NamedTuple):
    """widenings: of intervals. problems: number held out."""

    widenings: Mapping[Scales, Widening]
    problems: int

    @classmethod
    def of(cls, held_out: Iterable[HeldOutScale]) -> Calibration:
        """From one scale of each problem; none of them gives the priors."""
        every = list(held_out)
        widenings = {
            case: _widening([_distances(one) for one in every if Scales.of(one.scales) is case], WIDENED[case])
            for case in Scales
        }
        return cls(widenings, len(every))


def _distances(scale: HeldOutScale) -> Floats:
    """Distances of runs from the median, in half widths of the interval on their side; below 0 for faster runs."""
    lower, middle, upper = scale.predicted.quantiles([TAIL, 0.5, 1 - TAIL]).tolist()
    y = scale.log_seconds[-MAX_SCORED_RUNS:]
    return np.asarray(np.where(y > middle, (y - middle) / (upper - middle), (y - middle) / (middle - lower)))


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
