"""Particle swarm optimization: Kennedy and Eberhart (1995), with the constriction of Clerc and Kennedy (2002).

Own code for want of a library: pyswarms has had no release since 2021, and SciPy has no swarm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

INERTIA: Final = 0.7298
PULL: Final = 1.49618
"""To each particle's own best place and to the best of all."""


def minimize(
    cost: Callable[[Floats], Floats],
    lower: Floats,
    upper: Floats,
    *,
    seed: int,
    particles: int = 100,
    iterations: int = 1000,
) -> Floats:
    """The best place that the swarm found, within the box. cost: (particles, dimensions) -> (particles,), not NaN.

    lower, upper: the box, (dimensions,). A particle that leaves it stops at the wall.
    """
    rng = np.random.default_rng(seed)
    place = rng.uniform(lower, upper, (particles, lower.size))
    speed = rng.uniform(-(upper - lower), upper - lower, place.shape) / 2
    own, own_cost = place.copy(), cost(place)
    for _ in range(iterations):
        leader = own[np.argmin(own_cost)]
        to_own, to_leader = rng.random(place.shape), rng.random(place.shape)
        speed = INERTIA * speed + PULL * (to_own * (own - place) + to_leader * (leader - place))
        moved = place + speed
        place = np.clip(moved, lower, upper)
        speed[place != moved] = 0
        found = cost(place)
        better = found < own_cost
        own[better], own_cost[better] = place[better], found[better]
    return np.asarray(own[np.argmin(own_cost)])
