"""Amdahl's law and the overhead beside it: Alasandagutti, Bridges, Estrada (2024), section 2.

    T(N) = T(1) (1 - p + p / N)        (2), (6) with w = 1
    tau(N) = T_estimated / T_observed  (5)

p, the parallel share, is fitted to the smaller scales (the paper's cutoff c_f is the median scale), so that tau shows
where larger ones leave the law: below 1 where a run takes longer. The paper takes the p with the least squared error of
speedups; here errors are relative to the time, as the noise of runtimes is, and p has a posterior instead of a point:
Student's t with T(1) free, and equal odds for each factor of the serial share 1 - p.

A description of runs, not a prediction: the shapes of `shapes.py` contain the law with and without overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.answer import TAIL
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import Runs

MIN_SCALES: Final = 3
SERIAL: Final = np.concatenate([np.geomspace(1e-7, 1, 400), [0.0]])
"""Serial shares 1 - p of the posterior; the last one, no serial part, has the odds of one of them."""
NOISE: Final = 0.02
"""Prior spread of a runtime about the law, in logarithms."""
FREEDOM: Final = 4.0
"""Degrees of freedom of that prior."""


class Estimate(NamedTuple):
    """Median and limits of 95 %."""

    lower: float
    expected: float
    upper: float


@dataclass(frozen=True)
class AmdahlFit:
    """parallel: share p of the work, 0 to 1. cutoff: largest ranks that p was fitted to. overheads: tau by ranks,
    above 0, for all scales that were run."""

    parallel: Estimate
    cutoff: int
    overheads: dict[int, Estimate]


def fit_amdahl(runs: Runs) -> AmdahlFit | None:
    """Fit the runs of one problem and size; None at fewer than MIN_SCALES scales."""
    known = Configurations.of(runs)
    if len(known) < MIN_SCALES:
        return None
    fitted = known.ranks <= np.median(known.ranks)
    shapes = np.log(SERIAL[:, None] + (1 - SERIAL[:, None]) / known.ranks)
    residuals = known.log_seconds - shapes
    weights = known.repeats[fitted] / known.repeats[fitted].sum()
    level = residuals[:, fitted] @ weights
    squares = ((residuals[:, fitted] - level[:, None]) ** 2 * known.repeats[fitted]).sum(axis=1)
    freedom = FREEDOM + np.count_nonzero(fitted) - 1
    prior = NOISE**2 + known.variance
    log_posterior = -0.5 * freedom * np.log1p(squares / (FREEDOM * prior))
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    taus = np.exp(level[:, None] + shapes - known.log_seconds)
    overheads = {int(n): _estimate(taus[:, i], posterior) for i, n in enumerate(known.ranks)}
    return AmdahlFit(_estimate(1 - SERIAL, posterior), int(known.ranks[fitted][-1]), overheads)


def _estimate(values: Floats, weights: Floats) -> Estimate:
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(below, [TAIL, 0.5, 1 - TAIL]), values.size - 1)
    return Estimate(*values[order][at].tolist())
