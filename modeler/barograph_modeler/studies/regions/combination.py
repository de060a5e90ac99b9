"""Weights of several forecasts, and how wide their errors are, from scales that were held out.

Combined forecasts are seldom worse than the best one and never as bad as the worst (Bates and Granger 1969). Weights
are not negative, sum to 1, and minimize absolute errors in log seconds of held-out scales, by iteratively reweighted
least squares, with a prior: few scales are held out, and errors at the next one say little of those further out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import nnls

from barograph_modeler.maxima.sample import Floats

PRIOR_CASES: Final = 10.0
"""Held-out problems that the prior counts as."""
MIN_SCALE: Final = 0.05
"""Smallest usual error in log seconds, for the prior: smaller ones at the next scale do not tell the forecasts apart
further out."""
ROUNDS: Final = 30
TINY: Final = 0.003
"""Absolute errors in log seconds below which errors are as good as none."""
SUM: Final = 1e3
"""Weight of the condition that weights sum to 1."""
MIN_FACTOR: Final = 0.7
MAX_FACTOR: Final = 3.0
NORMAL_CASES: Final = 10.0
"""Held-out problems that count for predicted spreads being right."""


@dataclass(frozen=True)
class HeldOut:
    """One held-out configuration. problem: its name. errors: predicted minus observed log seconds, by expert.

    spreads: predicted, in log seconds, by expert.
    """

    problem: str
    errors: Mapping[str, float]
    spreads: Mapping[str, float]


@dataclass(frozen=True)
class Combination:
    """weights: by expert, with sum 1. factor: of spreads. cases: held-out configurations that decided them."""

    weights: Mapping[str, float]
    factor: float
    cases: int

    @classmethod
    def of(cls, cases: Sequence[HeldOut], prior: Mapping[str, float]) -> Combination:
        """Weights and factor. prior: weights without cases, with sum 1; cases without all its experts are skipped."""
        names = list(prior)
        known = [case for case in cases if prior.keys() <= case.errors.keys()]
        before = np.array([prior[name] for name in names])
        if not known:
            return cls(dict(prior), 1.0, 0)
        errors = np.array([[case.errors[name] for name in names] for case in known])
        spreads = np.array([[case.spreads[name] for name in names] for case in known])
        each = [sum(one.problem == case.problem for one in known) for case in known]
        shares = 1 / np.array(each, dtype=np.float64)
        weights = _weights(errors, shares, before)
        z = (errors @ weights) / combined_spread(errors, spreads, weights)
        square = (NORMAL_CASES + shares @ np.minimum(np.abs(z), 6.0) ** 2) / (NORMAL_CASES + shares.sum())
        factor = float(np.clip(np.sqrt(square), MIN_FACTOR, MAX_FACTOR))
        return cls(dict(zip(names, weights.tolist(), strict=True)), factor, len(known))


def combined_spread(medians: Floats, spreads: Floats, weights: Floats) -> Floats:
    """Spread of the combined forecast: mean variance of the experts, and how far these are apart. Rows are cases."""
    middle = medians @ weights
    return np.asarray(np.sqrt((spreads**2 + (medians - middle[..., None]) ** 2) @ weights))


def _weights(errors: Floats, shares: Floats, before: Floats) -> Floats:
    """Weights that minimize the sum of shares times absolute errors, (cases, experts)."""
    scale = max(float(np.median(np.abs(errors))), MIN_SCALE)
    weights = before
    for _ in range(ROUNDS):
        importance = np.sqrt(shares / np.maximum(np.abs(errors @ weights), TINY))
        rows = np.vstack(
            [
                errors * importance[:, None],
                np.sqrt(PRIOR_CASES * scale) * np.eye(before.size),
                np.full((1, before.size), SUM),
            ]
        )
        wanted = np.concatenate([np.zeros(len(errors)), np.sqrt(PRIOR_CASES * scale) * before, [SUM]])
        weights, _ = nnls(rows, wanted)
    return np.asarray(weights / weights.sum())
