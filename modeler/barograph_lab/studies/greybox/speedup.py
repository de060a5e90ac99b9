"""Amdahl's law with a problem size and an overhead: Alasandagutti, Bridges, Estrada (2024), section 2.

    S(N, w, p) = w / (1 - p + p / N)                 (2), w = m_original / m_scaled
    T_estimated(N, w, p) = T_observed(1, 1) / S      (6)
    tau = T_estimated / T_observed                   (5)
    Speedup' = S tau                                 (3)

Both times of (5) belong to one run, so Speedup' is the speedup over T_observed(1, 1), the serial run of the original
size. tau is 1 where Amdahl's law is exact and below 1 where the run takes longer: the paper's "overhead" is the share
of the speedup that remains, not the share that is lost.

w is a ratio of work. The paper forms it from "problem sizes", which is right if the serial time is proportional to the
size. For the edge of a mesh or the order of a matrix it is not; then pass the work (`complexity.py`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats

LEAST: Final = float(np.finfo(np.float64).tiny)
"""The smallest normal number above 0."""


def speedup(processes: npt.ArrayLike, w: npt.ArrayLike, p: npt.ArrayLike) -> Floats:
    """S(N, w, p) over the serial run of the original size, equation (2).

    processes: N >= 1. w: work of the original over work of the scaled problem, above 0. p: parallel share, 0 to 1. The
    three broadcast. Raises ValueError for values outside.

    >>> float(speedup(4, 1, 0.8))  # 1 / (0.2 + 0.8 / 4)
    2.5
    >>> float(speedup(4, 0.25, 0.8))  # four times the work
    0.625
    """
    n, ratio = _within("processes", processes, 1), _within("w", w)
    share = _within("p", p, 0, 1)
    return np.asarray(ratio / (1 - share + share / n))


def estimated_time(serial: npt.ArrayLike, processes: npt.ArrayLike, w: npt.ArrayLike, p: npt.ArrayLike) -> Floats:
    """T_estimated, equation (6). serial: T_observed(1, 1), above 0, in the unit of the result.

    >>> float(estimated_time(100, 4, 0.25, 0.8))
    160.0
    """
    return np.asarray(_within("serial time", serial) / speedup(processes, w, p))


def overhead(
    observed: npt.ArrayLike, serial: npt.ArrayLike, processes: npt.ArrayLike, w: npt.ArrayLike, p: npt.ArrayLike
) -> Floats:
    """tau of a run that took `observed`, equation (5): below 1 where it took longer than Amdahl's law predicts.

    >>> float(overhead(200, 100, 4, 0.25, 0.8))  # 160 expected
    0.8
    """
    return np.asarray(estimated_time(serial, processes, w, p) / _within("observed time", observed))


def corrected_time(
    serial: npt.ArrayLike, processes: npt.ArrayLike, w: npt.ArrayLike, p: npt.ArrayLike, tau: npt.ArrayLike
) -> Floats:
    """The time of a run with a predicted tau: T(1, 1) / (S tau), from equation (3). The inverse of `overhead`.

    >>> float(corrected_time(100, 4, 0.25, 0.8, 0.8))
    200.0
    """
    return np.asarray(estimated_time(serial, processes, w, p) / _within("tau", tau))


def _within(name: str, values: npt.ArrayLike, least: float = LEAST, most: float = np.inf) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    good = np.atleast_1d(np.isfinite(column) & (column >= least) & (column <= most))
    if not good.all():
        wrong = np.atleast_1d(column)[int(np.argmin(good))]
        low = "above 0" if least == LEAST else f"from {least:g}"
        high = "" if most == np.inf else f" to {most:g}"
        raise ValueError(f"{name}: {wrong:g}, expected a finite number {low}{high}")
    return column
