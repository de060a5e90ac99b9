"""How well models of one size have predicted the larger scales of a problem from its smaller ones.

The largest scales are left out, one, two and three at once, and each of them is predicted. The merit of a model,
by which its weight is multiplied, is e ** -n: e is its root mean square error in logarithms over these n predictions,
with EXACT and what repeated runs leave open as a least error.

They also show how fast the problem leaves a law beyond the scales that were run, its drift: a spread over a factor of e
in ranks, with a prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np

from barograph_modeler.scaling.amdahl.flat import is_unshown_growth
from barograph_modeler.scaling.amdahl.line import LogLine
from barograph_modeler.scaling.amdahl.overhead import AmdahlLaw
from barograph_modeler.scaling.calibration import AMDAHL, CURVES, LINE, OVERHEAD
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.evidence import ShapeEvidence
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.pool import SPREAD, posterior, relevant
from barograph_modeler.scaling.shapes import log_prior

MAX_LEFT_OUT: Final = 3
EXACT: Final = 0.03
"""Errors in logarithms that are as good as none: added to all as a variance, with that of the median of a scale."""
DRIFT_TIMES: Final = 1.0
"""Weight of the prior of a drift, in times that scales were left out."""

Curve: TypeAlias = Callable[[float], float]
"""Log seconds over ranks."""


class LeftOutScales(NamedTuple):
    """Predictions of the largest scales of a problem from its smaller ones.

    merits: of the models, by name, the largest of them 1. rates: by name, squares of errors in logarithms, and of those
    that cannot be seen, over a factor of e in ranks: one for each time that scales were left out.
    """

    merits: Mapping[str, float]
    rates: Mapping[str, Sequence[float]]

    @classmethod
    def of(cls, runs: Runs) -> Self:
        """Of a problem of one size. Without three scales there are none, and all merits are 1."""
        known = Configurations.of(runs)
        unseen = EXACT**2 + known.variance * float(np.mean(1 / known.repeats))
        squares: dict[str, list[float]] = {name: [] for name in (CURVES, AMDAHL, OVERHEAD, LINE)}
        rates: dict[str, list[float]] = {name: [] for name in squares}
        for left_out in range(1, min(MAX_LEFT_OUT, len(known) - 2) + 1):
            smaller = runs.select(runs.ranks < known.ranks[-left_out])
            if is_unshown_growth(Configurations.of(smaller)):
                continue
            reach = float(np.mean((known.log_ranks[-left_out:] - known.log_ranks[-left_out - 1]) ** 2))
            for name, curve in _curves(smaller).items():
                predicted = np.array([curve(ranks) for ranks in known.ranks[-left_out:]])
                found = unseen + (predicted - known.log_seconds[-left_out:]) ** 2
                squares[name] += found.tolist()
                rates[name].append(float(found.mean()) / reach)
        logs = {name: -len(some) / 2 * float(np.log(np.mean(some))) if some else 0.0 for name, some in squares.items()}
        largest = max(logs.values())
        return cls({name: math.exp(one - largest) for name, one in logs.items()}, rates)

    def drift(self, model: str, prior: float) -> float:
        """The spread, over a factor of e in ranks, of what a law lacks beyond the scales that were run.

        prior: that of a problem of which nothing was left out; no drift is larger.
        """
        seen = self.rates.get(model, ())
        return min(prior, math.sqrt((DRIFT_TIMES * prior**2 + sum(seen)) / (DRIFT_TIMES + len(seen))))


def _curves(runs: Runs) -> Mapping[str, Curve]:
    known = Configurations.of(runs)
    evidence = ShapeEvidence(runs)
    likelihood = evidence.fitted().log_likelihood(SPREAD)
    chosen, weights = relevant(posterior(likelihood, log_prior(float(known.ranks[-1]))))

    def of_shapes(ranks: float) -> float:
        return float(weights @ evidence.at(ranks, SPREAD, chosen).means)

    return {
        CURVES: of_shapes,
        AMDAHL: _middle(AmdahlLaw(known).at),
        OVERHEAD: _middle(AmdahlLaw(known, has_overhead=True).at),
        LINE: _middle(LogLine(known).at),
    }


def _middle(law: Callable[[float], Mixture]) -> Curve:
    return lambda ranks: float(law(ranks).means[0])
