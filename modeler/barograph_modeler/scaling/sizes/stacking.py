"""Weights of models by their predictions of held-out runs: stacking of predictive distributions (Yao et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

ROUNDS: Final = 100
MIN_LOG_DENSITY: Final = -20.0
"""A run far outside counts as this: one such run does not exclude a model."""


def stack(held_out: Sequence[Mapping[str, float]], prior: Mapping[str, float]) -> dict[str, float]:
    """Weights of models, with sum 1, that maximize the log density of a mixture on held-out runs.

    held_out: for each run, the log density that each model had predicted; runs without all models of `prior` are
    skipped. prior: pseudo-observations in favour of each model, above 0: a Dirichlet prior.
    """
    names = list(prior)
    known = [[max(one[name], MIN_LOG_DENSITY) for name in names] for one in held_out if prior.keys() <= one.keys()]
    before = np.array([prior[name] for name in names])
    weights = before / before.sum()
    if known:
        logs = np.array(known)
        densities = np.exp(logs - logs.max(axis=1, keepdims=True))
        for _ in range(ROUNDS):
            shares = weights * densities
            weights = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) + before
            weights /= weights.sum()
    return {name: float(weight) for name, weight in zip(names, weights, strict=True)}
