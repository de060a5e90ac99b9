"""Oliveira et al. (2018), Application Speedup Characterization, ICPE: Amdahl's law with two fitted functions.

    S(N, n) = 1 / (1 - f + f / N + Q)
    f(N, n) = min(max(f1 + f2 / N + f3 f4**n, 0), 1)      parallel share
    Q(N, n) = q1 + q2 N / q3**n                           overhead

fitted to speedups by particle swarm, 100 particles x 1,000 iterations as in Alasandagutti et al. (2024), section 5.6.
Strong scaling only: speedups are over the serial run of the same size. n numbers the problem sizes of the original's
benchmarks; here it is 1 + log2(m / m_smallest), so that a size that was not measured has a number too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.greybox.fraction import TooFewRuns
from barograph_modeler.studies.greybox.swarm import minimize

LOWER: Final = np.array([0.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0])
UPPER: Final = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0])
"""The box of f1, f2, f3, f4, q1, q2, q3."""


@dataclass(frozen=True)
class Oliveira:
    """The fitted model. parameters: f1, f2, f3, f4, q1, q2, q3. smallest: m where n is 1."""

    parameters: Floats
    smallest: float

    @classmethod
    def fit(cls, processes: Floats, size: Floats, measured: Floats, *, seed: int) -> Oliveira:
        """Least squares of speedups. Columns of one length. Raises TooFewRuns without a run on several processes."""
        if not (processes > 1).any():
            raise TooFewRuns("no run on more than 1 process, expected at least one: serial runs say nothing of speedup")
        smallest = float(np.min(size))
        number = _number(size, smallest)

        def cost(places: Floats) -> Floats:
            return np.asarray(np.mean((_speedups(places, processes, number) - measured) ** 2, axis=1))

        return cls(minimize(cost, LOWER, UPPER, seed=seed), smallest)

    def speedup(self, processes: Floats, size: Floats) -> Floats:
        """Speedup over the serial run of each size."""
        return np.asarray(_speedups(self.parameters[None], processes, _number(size, self.smallest))[0])


def _number(size: Floats, smallest: float) -> Floats:
    return np.asarray(1 + np.log2(size / smallest))


def _speedups(places: Floats, n: Floats, number: Floats) -> Floats:
    f1, f2, f3, f4, q1, q2, q3 = (column[:, None] for column in places.T)
    share = np.clip(f1 + f2 / n + f3 * f4**number, 0, 1)
    return np.asarray(1 / (1 - share + share / n + q1 + q2 * n / q3**number))
