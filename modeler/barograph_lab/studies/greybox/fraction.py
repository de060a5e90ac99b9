"""Estimates of the parallel share p: Alasandagutti et al. (2024), equations (4) and (9), section 5.1.

Each is the p in [0, 1] with the least squared error of speedups, over
- `aggregate`: all runs within both cutoffs, N <= c_f and m <= w_f;
- `optimal`: the runs of each size within c_f, including sizes beyond w_f;
- `optimal FD` (full data): all runs of each size.

The base of S_i must match w_i. The paper takes "the relative speedup for runs of the same problem size" and compares
it with S(N_i, w_i, p), which holds only for w_i = 1. Here w_i = 1 goes with the serial run of the same size, and
w_i = m_original / m with the serial run of the original size: T(1, m_original) / T(N, m).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar, nnls

from barograph_lab.studies.greybox.speedup import speedup
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

GRID: Final = np.concatenate([np.linspace(0, 0.99, 100), 1 - np.geomspace(0.01, 1e-9, 100), [1.0]])
"""Start of the search for the least error: dense near 1, where large speedups differ."""


class TooFewRuns(ValueError):
    """Too few runs for an estimate. The text states what was found and what was expected."""


def estimate_share(processes: npt.ArrayLike, w: npt.ArrayLike, measured: npt.ArrayLike) -> float:
    """The p in [0, 1] that minimizes sum (S_i - S(N_i, w_i, p))**2.

    processes, w, measured: N_i, w_i, S_i, of one length, at least one with N_i > 1. Raises TooFewRuns otherwise.

    >>> round(estimate_share([1, 2, 4], [1, 1, 1], [1.0, 1 / 0.6, 2.5]), 6)
    0.8
    """
    n, ratio, seen = (np.atleast_1d(np.asarray(column, dtype=np.float64)) for column in (processes, w, measured))
    if not (n > 1).any():
        raise TooFewRuns("no run on more than 1 process, expected at least one: serial runs do not determine p")

    def squares(p: float) -> float:
        return float(np.sum((seen - speedup(n, ratio, p)) ** 2))

    errors = np.array([squares(p) for p in GRID])
    best = int(np.argmin(errors))
    low, high = GRID[max(best - 1, 0)], GRID[min(best + 1, GRID.size - 1)]
    refined = minimize_scalar(squares, bounds=(low, high), method="bounded", options={"xatol": 1e-13})
    return float(refined.x if refined.fun < errors[best] else GRID[best])


def serial_time(runs: Runs) -> float:
    """T(1, m) of runs of one size: the mean of its serial runs or, without any, Amdahl's law fitted to the others.

    The fit is a + b / N with a, b >= 0, least squares of relative errors; T(1) = a + b. Raises TooFewRuns for runs at
    one scale without a serial run.
    """
    serial = runs.seconds[runs.ranks == 1]
    if serial.size:
        return float(np.mean(serial))
    if runs.scales.size < 2:
        raise TooFewRuns(f"no serial run and {runs.scales.size} scale, expected a run on 1 process or two scales")
    terms = np.stack([np.ones(len(runs)), 1 / runs.ranks], axis=1) / runs.seconds[:, None]
    weights, _ = nnls(terms, np.ones(len(runs)))
    return float(weights.sum())


def aggregate(
    runs: Runs, serial: Mapping[float, float], original: float | None, c_f: float | Floats, w_f: float
) -> float:
    """One p for all sizes, from the runs within both cutoffs.

    serial: T(1, m) per size. original: m_original, or None for speedups over each size's own serial run (w = 1). c_f:
    one cutoff, or one per run if the scales differ between sizes.
    """
    return _share(runs.select((runs.ranks <= c_f) & (runs.size <= w_f)), serial, original)


def optimal(
    runs: Runs, serial: Mapping[float, float], original: float | None, c_f: float | Floats
) -> dict[float, float]:
    """p per size, from the runs of that size within c_f. For `optimal FD`, c_f is infinite."""
    kept = runs.select(runs.ranks <= c_f)
    return {
        float(m): _share(kept.select(kept.size == m), serial, original) for m in np.unique(kept.size[kept.ranks > 1])
    }


def ratios(runs: Runs, original: float | None) -> Floats:
    """w per run: 1 if each size is its own original."""
    return np.ones(len(runs)) if original is None else original / runs.size


def references(runs: Runs, serial: Mapping[float, float], original: float | None) -> Floats:
    """The serial time of each run's speedup, in seconds."""
    if original is None:
        return np.array([serial[float(m)] for m in runs.size])
    return np.full(len(runs), serial[original])


def _share(runs: Runs, serial: Mapping[float, float], original: float | None) -> float:
    parallel = runs.select(runs.ranks > 1)
    measured = references(parallel, serial, original) / parallel.seconds
    return estimate_share(parallel.ranks, ratios(parallel, original), measured)
