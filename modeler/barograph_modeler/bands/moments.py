"""Exact moments of an unbounded series, merged from blocks as sums about the mean, so that no digits cancel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats


class Blocks(NamedTuple):
    """Values reduced to blocks: columns of counts, sums of powers, minima and maxima, all of one length."""

    counts: Floats
    sums: Floats
    squares: Floats
    cubes: Floats
    least: Floats
    most: Floats

    @classmethod
    def of_values(cls, values: Floats) -> Blocks:
        """One block per value."""
        return cls(np.ones(values.size), values, values**2, values**3, values, values)

    def select(self, rows: slice | npt.NDArray[np.intp]) -> Blocks:
        """A subset of the blocks. rows: a numpy index."""
        return Blocks(*(column[rows] for column in self))


@dataclass(slots=True)
class Moments:
    """Count, mean, extremes, and sums of squared and cubed deviations from the mean.

    Merging follows Chan, Golub and LeVeque (1979) and, for the cubes, Pebay (2008, Sandia report SAND2008-6212). A
    block of one value is exact. A larger block holds sums of powers about zero: its variance has a relative error of
    about 1e-16 mean**2 / variance, which does not accumulate.

    >>> moments = Moments()
    >>> moments.add(Blocks.of_values(np.array([1e9 + 1, 1e9 + 2, 1e9 + 3])))
    >>> moments.variance
    1.0
    """

    count: int = 0
    mean: float = math.nan
    squares: float = 0.0
    cubes: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    @property
    def total(self) -> float:
        """The sum of all values: 0 before the first."""
        return self.count * self.mean if self.count else 0.0

    @property
    def variance(self) -> float:
        """The unbiased variance; NaN below 2 values."""
        return self.squares / (self.count - 1) if self.count > 1 else math.nan

    @property
    def skewness(self) -> float:
        """Third central moment over the 3/2 power of the second (population moments); NaN if all values are equal."""
        return math.sqrt(self.count) * self.cubes / self.squares**1.5 if self.squares > 0 else math.nan

    def add(self, blocks: Blocks) -> None:
        """Add blocks of finite values, each of at least one value."""
        if not blocks.counts.size:
            return
        n = blocks.counts
        means = blocks.sums / n
        single = n == 1
        squares = np.where(single, 0.0, np.maximum(blocks.squares - means * blocks.sums, 0.0))
        cubes = np.where(single, 0.0, blocks.cubes - 3 * means * blocks.squares + 2 * n * means**3)
        base = float(means[0])
        count = float(n.sum())
        mean = base + float((n * (means - base)).sum()) / count
        apart = means - mean
        self._merge(
            int(count),
            mean,
            float((squares + n * apart**2).sum()),
            float((cubes + 3 * apart * squares + n * apart**3).sum()),
        )
        self.least = min(self.least, float(blocks.least.min()))
        self.most = max(self.most, float(blocks.most.max()))

    def _merge(self, count: int, mean: float, squares: float, cubes: float) -> None:
        if not self.count:
            self.count, self.mean, self.squares, self.cubes = count, mean, squares, cubes
            return
        m, n = self.count, count
        both, apart = m + n, mean - self.mean
        self.cubes += cubes + apart**3 * m * n * (m - n) / both**2 + 3 * apart * (m * squares - n * self.squares) / both
        self.squares += squares + apart**2 * m * n / both
        self.mean += apart * n / both
        self.count = both
