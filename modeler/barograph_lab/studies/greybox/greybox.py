"""The grey-box model: Amdahl's law times an overhead learned from 5-sample vectors (Alasandagutti et al. 2024).

Three learners of tau, as in section 5.2 (the paper's libraries in brackets; docs/engineer/scaling-papers.md explains
why all are scikit-learn's):
- a random forest, depth 5 (scikit-learn). Its "Friedman mean squared error" is the squared error, split for split;
- gradient-boosted trees, depth 5, squared error (XGBoost), with XGBoost's 100 trees and learning rate 0.3;
- a network with 16 inputs, layers of 16, 16 and 8 (relu) and one softplus output (TensorFlow). scikit-learn's network
  has a linear output u and squared loss. Before each pass over the vectors its target is set to
  u + (tau - softplus(u)) / s and its weight to s**2, s = softplus'(u): the gradient of its loss is then that of
  (tau - softplus(u))**2, the paper's loss. Inputs are standardized, which the paper does not mention.

The paper gives no number of vectors; here VECTORS train, and a prediction is the mean over DRAWS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.neural_network import MLPRegressor

from barograph_lab.studies.greybox.fraction import TooFewRuns
from barograph_lab.studies.greybox.samples import Points, Rows, contexts, feature_names, vectors
from barograph_modeler.maxima.sample import Floats

VECTORS: Final = 1000
"""Training vectors of a learner."""
DRAWS: Final = 16
"""Vectors per prediction: draws of the four runs at small scale."""
EPOCHS: Final = 200
"""Training passes of the network."""
CONSTANT: Final = 1e-9
"""Relative spread of an input below which it is rounding error."""
LEAST_OUTPUT: Final = -20.0
"""Smallest output of the network in training: softplus is flat below it, and the gradient vanishes."""
LEAST_TAU: Final = 1e-6
"""Smallest overhead factor: the run takes a million times the time of Amdahl's law."""


class Softplus:
    """The network. seed: for weights and batches."""

    def __init__(self, seed: int) -> None:
        self._network = MLPRegressor(hidden_layer_sizes=(16, 16, 8), activation="relu", random_state=seed)

    def fit(self, x: Floats, tau: Floats) -> Softplus:
        """Train. x: (vectors, features). tau: above 0."""
        self._mean, spread = x.mean(axis=0), x.std(axis=0)
        # A constant input carries no information: it is standardized to 0, whatever its value.
        self._scale = np.where(spread > CONSTANT * np.abs(self._mean), spread, np.inf)
        standard = (x - self._mean) / self._scale
        u = np.zeros(tau.size)
        for _ in range(EPOCHS):
            slope = expit(u)
            self._network.partial_fit(standard, u + (tau - np.logaddexp(0, u)) / slope, sample_weight=slope**2)
            u = np.maximum(self._network.predict(standard), LEAST_OUTPUT)
        return self

    def predict(self, x: Floats) -> Floats:
        """Tau per vector."""
        return np.asarray(np.logaddexp(0, self._network.predict((x - self._mean) / self._scale)))


class OverheadMethod(NamedTuple):
    """A named learner of tau. make: from a seed, an estimator with scikit-learn's `fit` and `predict`."""

    name: str
    label: str
    help: str
    make: Callable[[int], Any]


METHODS: Final = (
    OverheadMethod(
        "greybox-forest",
        "RF",
        "Amdahl's law times an overhead learned by a random forest",
        lambda seed: RandomForestRegressor(max_depth=5, criterion="squared_error", random_state=seed),
    ),
    OverheadMethod(
        "greybox-trees",
        "GBT",
        "Amdahl's law times an overhead learned by gradient-boosted trees",
        lambda seed: GradientBoostingRegressor(max_depth=5, learning_rate=0.3, n_estimators=100, random_state=seed),
    ),
    OverheadMethod("greybox-mlp", "NN", "Amdahl's law times an overhead learned by a neural network", Softplus),
)


class GreyBox:
    """An overhead model of one application on one machine.

    points: runs within the cutoffs, with known tau. c_f: the cutoff of processes, one number or one per point. Raises
    TooFewRuns if no problem size has runs on both sides of c_h = c_f / 2, so that there is no vector.
    """

    def __init__(self, method: OverheadMethod, points: Points, c_f: float | Floats, seed: int) -> None:
        c_h = np.broadcast_to(np.asarray(c_f, dtype=np.float64) / 2, points.ranks.shape)
        pools = contexts(points, c_h)
        known = np.isin(points.group, list(pools))
        targets = np.flatnonzero(known & (points.ranks > c_h) & (points.ranks <= c_f))
        if not targets.size:
            raise TooFewRuns(
                f"no size has runs with 1 < N <= c_h and runs with c_h < N <= c_f, c_h up to {c_h.max():g}, "
                "expected one: vectors are made of both"
            )
        self.targets = np.unique(
            np.stack([points.ranks, np.nan_to_num(points.nodes), points.size])[:, targets], axis=1
        ).shape[1]
        """Distinct configurations (processes, nodes, size) whose tau is learned: repeats and originals count once."""
        self._levels = points.levels
        self._seed = seed
        rng = np.random.default_rng(seed)
        drawn = rng.choice(targets, VECTORS)
        self._learner = method.make(seed)
        x = vectors(points, drawn, pools, self._levels, rng)
        self._low, self._high = x.min(axis=0), x.max(axis=0)
        self._learner.fit(x, points.tau[drawn])

    def predict(self, points: Points, targets: Rows, c_h: float | Floats) -> Floats:
        """Tau per target, the mean over DRAWS vectors; NaN if the target's group has no runs with 1 < N <= c_h."""
        known, x = self._vectors(points, targets, c_h)
        tau = np.full(targets.size, np.nan)
        if known.any():
            found = self._learner.predict(x)
            tau[known] = np.maximum(np.mean(found.reshape(-1, DRAWS), axis=1), LEAST_TAU)
        return tau

    def beyond(self, points: Points, targets: Rows, c_h: float | Floats) -> dict[str, float]:
        """How far the vectors of `predict` lie outside the range of the training vectors, by feature.

        In widths of that range, the largest over vectors; infinity for a feature that never varied in training. Only
        features that leave their range: inside all ranges a vector may still lie outside the convex hull.
        """
        _, x = self._vectors(points, targets, c_h)
        width = self._high - self._low
        excess = np.maximum(x - self._high, self._low - x)
        constant = width <= CONSTANT * np.abs(self._high)
        excess = np.where(np.abs(excess) <= CONSTANT * np.abs(self._high), 0.0, excess)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(constant, np.where(excess > 0, np.inf, 0.0), excess / width)
        found: dict[str, float] = {}
        for name, column in zip(feature_names(self._levels), ratio.T, strict=True):
            found[name] = max(found.get(name, 0.0), float(column.max(initial=0.0)))
        return {name: most for name, most in found.items() if most > 0}

    def _vectors(self, points: Points, targets: Rows, c_h: float | Floats) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Whether each target has runs at small scale, and DRAWS vectors of each target that has."""
        pools = contexts(points, c_h)
        known = np.isin(points.group[targets], list(pools))
        drawn = np.repeat(targets[known], DRAWS)
        rng = np.random.default_rng(self._seed + 1)
        if not drawn.size:
            return known, np.empty((0, self._low.size))
        return known, vectors(points, drawn, pools, self._levels, rng)
