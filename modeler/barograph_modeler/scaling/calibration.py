"""What held-out runs of an application show of its predictions: weights of models, and how wide intervals must be.

The largest scale of each problem is predicted from the lower half of its scales.
- Weights: stacking, for problems of one size.
- Width: split-conformal. Runs are measured in half widths of the interval; the factor is the 95 % quantile of these,
  together with a prior of PRIOR_PROBLEMS problems for which WIDENED is right. One problem shows little; fifty show how
  noisy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.answer import TAIL
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.sizes.stacking import stack

CURVES: Final = "curves of the size"
OVERHEAD: Final = "Amdahl's law with overhead"
PRIOR: Final = {CURVES: 10.0, OVERHEAD: 1.0}
"""Prior weights of the models, in held-out problems."""
WIDENED: Final = 1.4
"""The factor without evidence: split-conformal, from public runs of other applications (docs/engineer/scaling.md)."""
PRIOR_PROBLEMS: Final = 10.0
FACTORS: Final = np.geomspace(1.3, 4.0, 100)
"""Factors that are considered, ascending."""
MAX_SCORED_RUNS: Final = 16
"""Newest runs of a problem that are measured."""


class HeldOutScale(NamedTuple):
    """A scale that was left out: its prediction by each model, and the log seconds of its runs, (runs,)."""

    models: Mapping[str, Mixture]
    log_seconds: Floats


class Calibration(NamedTuple):
    """weights: of the models of one size, with sum 1. factor: by which intervals are widened. problems: held out."""

    weights: Mapping[str, float]
    factor: float
    problems: int

    @classmethod
    def of(cls, held_out: Iterable[HeldOutScale]) -> Calibration:
        """From one scale of each problem; none of them gives the priors."""
        every = list(held_out)
        densities = [
            {name: model.log_density(float(np.median(one.log_seconds))) for name, model in one.models.items()}
            for one in every
        ]
        weights = stack(densities, PRIOR)
        return cls(weights, _factor([_distances(one, weights) for one in every]), len(every))


def join(models: Mapping[str, Mixture], weights: Mapping[str, float]) -> tuple[dict[str, float], Mixture]:
    """Weights of models, scaled to sum 1, and the mixture of the models."""
    total = sum(weights[name] for name in models)
    shares = {name: weights[name] / total for name in models}
    return shares, Mixture.joined([(shares[name], one) for name, one in models.items()])


def _distances(one: HeldOutScale, weights: Mapping[str, float]) -> Floats:
    """Distances of runs from the median, in half widths of the interval on their side."""
    _, mixture = join(one.models, weights)
    lower, middle, upper = (mixture.quantile(p) for p in (TAIL, 0.5, 1 - TAIL))
    y = one.log_seconds[-MAX_SCORED_RUNS:]
    return np.where(y > middle, (y - middle) / (upper - middle), (middle - y) / (middle - lower))


def _factor(problems: list[Floats]) -> float:
    inside = PRIOR_PROBLEMS * (1 - 2 * ndtr(ndtri(TAIL) * FACTORS / WIDENED))
    for distances in problems:
        inside += (distances[:, None] <= FACTORS).mean(axis=0)
    reached = inside >= (1 - 2 * TAIL) * (PRIOR_PROBLEMS + len(problems))
    return float(FACTORS[np.argmax(reached)] if reached.any() else FACTORS[-1])
