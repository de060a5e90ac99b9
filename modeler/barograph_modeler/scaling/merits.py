"""How well models of one size have predicted the larger scales of a problem from its smaller ones.

The largest scales are left out, one, two and three at once, and each of them is predicted. The merit of a model,
by which its weight is multiplied, is (EXACT**2 + e**2) ** (-n / 2): e is its root mean square error in logarithms over
these predictions, n the number of times that scales were left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

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
"""Errors in logarithms that are as good as none."""

Curve: TypeAlias = Callable[[float], float]
"""Log seconds over ranks."""


def merits(runs: Runs) -> dict[str, float]:
    """Merits of the models, by name, the largest of them 1. runs: of one problem and one size."""
    known = Configurations.of(runs)
    errors: dict[str, list[float]] = {name: [] for name in (CURVES, AMDAHL, OVERHEAD, LINE)}
    for left_out in range(1, min(MAX_LEFT_OUT, len(known) - 2) + 1):
        smaller = runs.select(runs.ranks < known.ranks[-left_out])
        if is_unshown_growth(Configurations.of(smaller)):
            continue
        for name, curve in _curves(smaller).items():
            predicted = np.array([curve(ranks) for ranks in known.ranks[-left_out:]])
            errors[name].append(float(np.mean((predicted - known.log_seconds[-left_out:]) ** 2)))
    logs = {name: -len(some) / 2 * np.log(EXACT**2 + np.mean(some)) if some else 0.0 for name, some in errors.items()}
    largest = max(logs.values())
    return {name: float(np.exp(one - largest)) for name, one in logs.items()}


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
