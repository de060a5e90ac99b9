"""The configurations of a problem: each number of ranks and size that was run, with the median of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from barograph_modeler.maxima.runtime import Repeats
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

MAX_CONFIGURATIONS: Final = 128
"""Configurations that a model over sizes is fitted to; of more, evenly many of small and large scales."""
NO_REPEATS: Final = 2.0
"""Pseudo-observations without variance that are added to the repeats, so that two repeats do not set the variance."""


@dataclass(frozen=True)
class Configurations:
    """Columns with a row per configuration, in order of ranks, then size.

    ranks: (m,). sizes: (m, k), k numbers that make up the size. log_seconds: (m,), medians of repeats. repeats: (m,),
    their number. variance: of repeats in log seconds, shrunk towards 0 if there are few; spread: what they show of it.
    """

    ranks: Floats
    sizes: Floats
    log_seconds: Floats
    repeats: Floats
    variance: float
    spread: Repeats

    @classmethod
    def of(cls, runs: Runs) -> Configurations:
        """The configurations of at least one run."""
        found, inverse = np.unique(np.column_stack([runs.ranks, runs.sizes]), axis=0, return_inverse=True)
        groups = [np.log(runs.seconds[inverse.ravel() == i]) for i in range(len(found))]
        squares = sum(float(((some - some.mean()) ** 2).sum()) for some in groups)
        spread = Repeats(squares, float(len(runs) - len(groups)))
        kept = np.unique(np.linspace(0, len(found) - 1, MAX_CONFIGURATIONS).astype(int))
        medians = np.array([np.median(some) for some in groups])
        counts = np.array([float(some.size) for some in groups])
        return cls(
            found[kept, 0],
            found[kept, 1:],
            medians[kept],
            counts[kept],
            squares / (spread.freedom + NO_REPEATS),
            spread,
        )

    def __len__(self) -> int:
        return self.ranks.size

    @property
    def is_series(self) -> bool:
        """Whether each size was run at one scale, and each scale with one size, as in a weak series."""
        sizes = np.unique(self.sizes, axis=0).shape[0]
        return bool(sizes > 1 and len(self) == sizes == np.unique(self.ranks).size)

    @cached_property
    def log_ranks(self) -> Floats:
        """Logarithms of the ranks: (m,)."""
        return np.asarray(np.log(self.ranks))

    @cached_property
    def log_sizes(self) -> Floats:
        """Logarithms of the sizes: (m, k)."""
        return np.asarray(np.log(self.sizes))
