"""How likely each candidate runtime is: weights learned online from how jobs ended.

A score per candidate and kernel width, one layer of tanh units beside a linear part, through a softmax over all
candidates and widths: attention over past jobs. The runtime's density is the mixture of Laplace kernels of log seconds
with these weights, and each ended job is a step up its log likelihood. The linear
part has a correction for each user, learned by AdaGrad and decaying.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

import numpy as np

from barograph_modeler.limits.adam import Adam
from barograph_modeler.limits.candidates import (
    AGE,
    DIFFERENCES,
    FEATURES,
    ON_SCALE,
    OUTLIVED,
    PROGRAM_RECENCY,
    SAME_PROGRAM,
    SAME_REQUEST,
    USER_RECENCY,
    Candidates,
)
from barograph_modeler.maxima.sample import Floats

WIDTHS: Final = np.array([0.03, 0.15, 0.5, 1.5])
"""Of the kernels, in natural logarithms."""
UNITS: Final = 24
SHAPES: Final = ((FEATURES, UNITS), (UNITS,), (UNITS, WIDTHS.size), (FEATURES, WIDTHS.size), (WIDTHS.size,))
"""Of the parameters: weights and offsets of the units, their output, the linear part, offsets of the widths."""
USER_RATE: Final = 0.1
USER_DECAY: Final = 0.01
MAX_USERS: Final = 2000
"""Corrections kept, at 3 kB; that of the user without jobs for longest is dropped."""
TINY: Final = 1e-12
"""Likelihood of a runtime outside all candidates."""
INITIAL: Final = {
    SAME_PROGRAM: 1.0,
    SAME_REQUEST: 1.0,
    USER_RECENCY: -0.5,
    PROGRAM_RECENCY: -1.0,
    AGE: -0.3,
    DIFFERENCES: -1.0,
    DIFFERENCES + 1: -1.0,
    ON_SCALE: -1.0,
    OUTLIVED: -0.5,
    OUTLIVED + 1: -0.5,
}
"""Linear weights before any job: newer runs of the same program count for more, and for less what running jobs have
outlived."""


class CandidateWeights:
    """Gives each candidate of a job its weights, and learns from its runtime. Deterministic for a seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = [math.prod(shape) for shape in SHAPES]
        parameters = np.zeros(sum(sizes))
        split = np.split(parameters, np.cumsum(sizes)[:-1])
        # Views, which change as the parameters are learned.
        views = [one.reshape(shape) for one, shape in zip(split, SHAPES, strict=True)]
        self._hidden, self._offset, self._output, self._linear, self._width = views
        self._hidden[:] = rng.normal(0, 1 / math.sqrt(FEATURES), self._hidden.shape)
        self._output[:] = rng.normal(0, 0.05 / math.sqrt(UNITS), self._output.shape)
        for feature, weight in INITIAL.items():
            self._linear[feature] = weight
        self._descent = Adam(parameters)
        self._users: OrderedDict[int, tuple[Floats, Floats]] = OrderedDict()

    def __call__(self, features: Floats, user: int) -> Floats:
        """The weights by candidate and width; their sum is 1."""
        return self._forward(features, user)[1]

    def learn(self, those: Candidates, user: int, log_seconds: float) -> None:
        """A step for a job's candidates and its runtime."""
        features = those.features
        hidden, weights = self._forward(features, user)
        distances = np.abs(log_seconds - those.log_seconds)[:, None] / WIDTHS
        shares = weights * np.exp(-distances) / (2 * WIDTHS)
        slope = weights - shares / (shares.sum() + TINY)
        linear = features.T @ slope
        inner = (slope @ self._output.T) * (1 - hidden * hidden)
        gradients = (features.T @ inner, inner.sum(axis=0), hidden.T @ slope, linear, slope.sum(axis=0))
        self._learn_user(user, linear)
        self._descent.add(np.concatenate([one.ravel() for one in gradients]))

    def _forward(self, features: Floats, user: int) -> tuple[Floats, Floats]:
        correction = self._users.get(user)
        linear = self._linear if correction is None else self._linear + correction[0]
        hidden = np.tanh(features @ self._hidden + self._offset)
        scores = hidden @ self._output + features @ linear + self._width
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        return hidden, weights

    def _learn_user(self, user: int, slope: Floats) -> None:
        correction, squares = self._users.get(user) or (np.zeros_like(slope), np.ones_like(slope))
        squares += slope * slope
        correction *= 1 - USER_DECAY
        correction -= USER_RATE * slope / np.sqrt(squares)
        self._users[user] = (correction, squares)
        self._users.move_to_end(user)
        if len(self._users) > MAX_USERS:
            self._users.popitem(last=False)
