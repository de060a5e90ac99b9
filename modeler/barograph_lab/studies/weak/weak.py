"""The log-bilinear law of weak scaling: Mokrov (2020), section 4.1.

    log D = b1 log p + b2 log N + b3 log p log N      (7)

D: the least time or the largest performance over repeats of one configuration; p: processes; N: problem size. Least
squares in log space, so that the error is relative. Logarithms are to base 2 throughout, as (5) requires.

Along an exact weak series, T_A(N) / p = const with T_A a power, log N is linear in log p, and the three terms span 1,
log p and (log p)**2. So (7) is a parabola in log p whose constant comes from log N. It vanishes for N = p in the given
units (log N = log p): a law without intercept then has D = 1 at p = 1. An intercept removes that and the dependence on
units. Its column is then linearly dependent, so the coefficients (not the predictions along the series) are not unique.

The paper's relative error in log space, 2**|error| - 1 (5), is right only for predictions that are too high. With
error = log D - log D' (6), |D - D'| / D = |2**-error - 1|, which is 1 - 2**-|error| for predictions too low.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats

Kind = Literal["time", "performance"]

BEST: Final[dict[str, Callable[..., float]]] = {"time": min, "performance": max}

RANK_TOLERANCE: Final = 1e-12
"""Relative size of an eigenvalue of the normal equations that counts as 0: linearly dependent columns."""


class LogBilinear:
    """The law, learned run by run: recursive least squares in information form.

    Keeps X'X and X'y, so a run costs one update of a matrix of 3 x 3 (4 x 4 with intercept) and nothing is refitted. A
    repeat that beats the best of its configuration changes X'y only. kind: of the values.

    With an intercept, logarithms are relative to those of the first run: the same law in numbers near 0 for any units.
    """

    def __init__(self, *, intercept: bool = False, kind: Kind = "time") -> None:
        if kind not in BEST:
            raise ValueError(f"kind is {kind!r}, expected one of {', '.join(BEST)}")
        self._intercept = intercept
        self._better = BEST[kind]
        terms = 4 if intercept else 3
        self._information = np.zeros((terms, terms))
        self._moment = np.zeros(terms)
        self._best: dict[tuple[float, float], float] = {}
        self._origin = (0.0, 0.0)

    def learn(self, processes: float, size: float, value: float) -> None:
        """Learn a run. processes: whole, from 1. size, value: above 0, in a fixed unit. Raises ValueError otherwise."""
        if not (np.isfinite(processes) and processes >= 1 and processes == int(processes)):
            raise ValueError(f"processes are {processes:g}, expected a whole number from 1")
        for name, number in (("size", size), ("value", value)):
            if not (np.isfinite(number) and number > 0):
                raise ValueError(f"{name} is {number:g}, expected a finite number above 0")
        if self._intercept and not self._best:
            self._origin = (float(np.log2(processes)), float(np.log2(size)))
        row = self._terms(np.array([float(processes)]), np.array([float(size)]))[0]
        known = self._best.get((processes, size))
        best = value if known is None else self._better(known, value)
        if known is None:
            self._information += np.outer(row, row)
            self._moment += row * np.log2(best)
        else:
            self._moment += row * (np.log2(best) - np.log2(known))
        self._best[processes, size] = best

    @property
    def configurations(self) -> int:
        """Number of distinct configurations learned."""
        return len(self._best)

    @property
    def coefficients(self) -> Floats:
        """b1, b2, b3 and, with an intercept, b0 last; the minimum-norm solution if they are not unique.

        Raises ValueError for fewer scales than an extrapolation needs: two, or three without intercept.
        """
        solution = self._solution()
        if not self._intercept:
            return solution
        b1, b2, b3, b0 = solution
        x, y = self._origin
        return np.array([b1 - b3 * y, b2 - b3 * x, b3, b0 - b1 * x - b2 * y + b3 * x * y])

    def predict(self, processes: npt.ArrayLike, size: npt.ArrayLike) -> Floats:
        """Time or performance, in the learned unit."""
        rows = self._terms(np.asarray(processes, dtype=np.float64), np.asarray(size, dtype=np.float64))
        return np.asarray(np.exp2(rows @ self._solution()))

    def _solution(self) -> Floats:
        scales = {processes for processes, _ in self._best}
        wanted = 2 if self._intercept else 3
        if len(scales) < wanted:
            raise ValueError(f"{len(scales)} distinct numbers of processes, expected at least {wanted}")
        if not self._intercept and all(size == 1 for _, size in self._best):
            raise ValueError("size is 1 in every run, so log size is 0: expected sizes, or the law with intercept")
        solution, *_ = np.linalg.lstsq(self._information, self._moment, rcond=RANK_TOLERANCE)
        return np.asarray(solution)

    def _terms(self, processes: Floats, size: Floats) -> Floats:
        p, n = np.log2(processes) - self._origin[0], np.log2(size) - self._origin[1]
        columns = [p, n, p * n, np.ones_like(p)]
        return np.stack(columns if self._intercept else columns[:3], axis=-1)


def relative_error(observed: npt.ArrayLike, predicted: npt.ArrayLike) -> Floats:
    """|D - D'| / D, equation (3).

    >>> float(relative_error(8.0, 10.0)), float(relative_error(8.0, 6.0))
    (0.25, 0.25)
    """
    seen = np.asarray(observed, dtype=np.float64)
    return np.asarray(np.abs(seen - np.asarray(predicted, dtype=np.float64)) / seen)
