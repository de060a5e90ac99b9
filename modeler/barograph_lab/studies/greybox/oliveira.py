"""Oliveira et al. (2018), Application Speedup Characterization, ICPE: Amdahl's law with two fitted functions.

    S(N, n) = 1 / (1 - f + f / N + Q)
    f(N, n) = min(max(f1 + f2 / N + f3 f4**n, 0), 1)      parallel share
    Q(N, n) = q1 + q2 N / q3**n                           overhead

fitted to speedups by particle swarm, 100 particles x 1,000 iterations as in Alasandagutti et al. (2024), section 5.6.
Strong scaling only: speedups are over the serial run of the same size. In the original, n numbers the problem sizes of
a benchmark; here it is 1 + log2(m / m_smallest), so that unmeasured sizes have a number too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_lab.studies.greybox.fraction import TooFewRuns
from barograph_modeler.maxima.sample import Floats

LOWER: Final = np.array([0.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0])
UPPER: Final = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0])
"""The bounds of f1, f2, f3, f4, q1, q2, q3."""
INERTIA: Final = 0.7298
ATTRACTION: Final = 1.49618
"""To the best position of the particle and to that of the swarm."""


@dataclass(frozen=True)
class Oliveira:
    """The fitted model. parameters: f1, f2, f3, f4, q1, q2, q3. smallest: m where n is 1."""

    parameters: Floats
    smallest: float

    @classmethod
    def fit(cls, processes: Floats, size: Floats, measured: Floats, *, seed: int) -> Oliveira:
        """Least squares of speedups. Columns of one length. Raises TooFewRuns without a run on several processes."""
        if not (processes > 1).any():
            raise TooFewRuns("no run on more than 1 process, expected at least one: serial runs have no speedup")
        smallest = float(np.min(size))
        number = _number(size, smallest)

        def cost(positions: Floats) -> Floats:
            return np.asarray(np.mean((_speedups(positions, processes, number) - measured) ** 2, axis=1))

        return cls(minimize(cost, LOWER, UPPER, seed=seed), smallest)

    def speedup(self, processes: Floats, size: Floats) -> Floats:
        """Speedup over the serial run of each size."""
        return np.asarray(_speedups(self.parameters[None], processes, _number(size, self.smallest))[0])


def minimize(
    cost: Callable[[Floats], Floats],
    lower: Floats,
    upper: Floats,
    *,
    seed: int,
    particles: int = 100,
    iterations: int = 1000,
) -> Floats:
    """The best position found by particle swarm: Kennedy and Eberhart (1995), constriction of Clerc and Kennedy (2002).

    cost: (particles, dimensions) -> (particles,), not NaN. lower, upper: bounds, (dimensions,); particles stop there.
    Hand-written: SciPy has no swarm, and pyswarms has had no release since 2021.
    """
    rng = np.random.default_rng(seed)
    position = rng.uniform(lower, upper, (particles, lower.size))
    velocity = rng.uniform(-(upper - lower), upper - lower, position.shape) / 2
    own, own_cost = position.copy(), cost(position)
    for _ in range(iterations):
        leader = own[np.argmin(own_cost)]
        to_own, to_leader = rng.random(position.shape), rng.random(position.shape)
        velocity = INERTIA * velocity + ATTRACTION * (to_own * (own - position) + to_leader * (leader - position))
        moved = position + velocity
        position = np.clip(moved, lower, upper)
        velocity[position != moved] = 0
        found = cost(position)
        better = found < own_cost
        own[better], own_cost[better] = position[better], found[better]
    return np.asarray(own[np.argmin(own_cost)])


def _number(size: Floats, smallest: float) -> Floats:
    return np.asarray(1 + np.log2(size / smallest))


def _speedups(parameters: Floats, n: Floats, number: Floats) -> Floats:
    f1, f2, f3, f4, q1, q2, q3 = (column[:, None] for column in parameters.T)
    share = np.clip(f1 + f2 / n + f3 * f4**number, 0, 1)
    return np.asarray(1 / (1 - share + share / n + q1 + q2 * n / q3**number))
