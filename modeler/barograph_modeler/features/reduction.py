"""Reduction to features that are known early and are important (Sun et al. 2020, section 2.4)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.features.estimators.trees import importances
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.sample import Floats

TIME_SHARE: Final = 0.05
IMPORTANCE_SHARE: Final = 0.95
Indices = npt.NDArray[np.intp]


def by_time(known_at: Floats, seconds: Floats, share: float = TIME_SHARE) -> Indices:
    """Indices of the features known early: mean time until known over mean runtime is at most `share`.

    known_at: (n, m) seconds from the start of run i to the last change of feature j. seconds: n runtimes. As in the
    paper this is a ratio of means, in which long runs have more weight.
    """
    if not 0 < share <= 1:
        raise ValueError(f"time share is {share}, expected above 0 and at most 1")
    return np.flatnonzero(known_at.mean(axis=0) / seconds.mean() <= share)


def by_importance(sample: Sample, share: float = IMPORTANCE_SHARE, *, seed: int = 0) -> Indices:
    """Indices of the most important features that together have at least `share` of the importance, descending.

    The paper keeps features "with accumulative importance not greater than the threshold", which is none if one
    feature alone exceeds it; here the feature that crosses the threshold is kept too.
    """
    if not 0 < share <= 1:
        raise ValueError(f"importance share is {share}, expected above 0 and at most 1")
    weights = importances(sample, seed=seed)
    order = np.argsort(-weights, kind="stable")
    reached = np.cumsum(weights[order])
    last = int(np.argmax(reached >= share - 1e-12)) if weights.any() else len(order) - 1
    return order[: last + 1]
