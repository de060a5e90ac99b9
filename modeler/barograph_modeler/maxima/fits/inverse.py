"""The vectorised inverse of a strictly decreasing function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

STEPS: Final = 4
"""Each step reduces the error about a hundredfold; a table of 2,000 cells starts at 1e-5."""


class FallingInverse:
    """Solves f(x) = y for x within `grid`, by table lookup and then by chords with the slopes of the table's cells.

    f: strictly decreasing over the grid, vectorised. grid: ascending, dense enough that f is nearly linear between
    neighbours. A y outside the range of f gives the nearer end.
    """

    def __init__(self, f: Callable[[Floats], Floats], grid: Floats) -> None:
        self._f = f
        self._grid = grid
        self._values = f(grid)
        if not (np.diff(self._values) < 0).all():
            raise ValueError("function does not fall everywhere on the grid")
        self._slopes = np.diff(self._values) / np.diff(grid)

    def __call__(self, y: Floats) -> Floats:
        """x for every y, of the same shape; NaN for NaN."""
        low, high = self._grid[0], self._grid[-1]
        x = np.interp(-y, -self._values, self._grid)
        cell = np.clip(np.searchsorted(self._grid, x, side="right") - 1, 0, self._slopes.size - 1)
        slope = self._slopes[cell]
        for _ in range(STEPS):
            x = np.clip(x - (self._f(x) - y) / slope, low, high)
        return np.asarray(x)
