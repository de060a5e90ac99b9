"""Errors for values of a feature that no run had, from runs whose value is left out.

Benchmarks and users take sizes from a few levels, such as powers of 2. Held-out runs have the same levels as the others
and do not show how wrong a prediction between two levels is. So every other level of a feature is left out once, and
the runs there are predicted from the rest. Gaps are twice as wide then. An error in proportion to the gap is half as
large between neighbouring levels, and its square a quarter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.features.sample import FEWEST, Sample
from barograph_modeler.maxima.band import LEVEL
from barograph_modeler.maxima.sample import Floats

MIN_LEVELS: Final = 4
MAX_LEVELS: Final = 32
"""Values of a feature that count as levels; of more, runs between them are not rare among those held out."""
MAX_FEATURES: Final = 8
"""Features whose levels are left out: those with the fewest."""
MIN_SHARE: Final = 0.4
"""Least share of the runs that is left to learn from."""
EXCESS: Final = 0.25


@dataclass(frozen=True)
class LevelErrors:
    """levels: values of the features, by position. excess: how much larger the square of a score is between them,
    relative to that of other runs, by position."""

    levels: Mapping[int, Floats]
    excess: Mapping[int, float]

    @classmethod
    def of(
        cls,
        sample: Sample,
        refit: Callable[[Sample], Callable[[Floats], Floats]],
        score: Callable[[Sample, Floats], Floats],
        usual: float,
    ) -> LevelErrors:
        """Leave out every other level of each feature. score: of runs and their predicted seconds. usual: the score
        that a share of LEVEL of held-out runs stays below."""
        every = {at: np.unique(sample.values[:, at]) for at in range(len(sample.names))}
        few = [at for at in sorted(every, key=lambda at: every[at].size) if MIN_LEVELS <= every[at].size <= MAX_LEVELS]
        levels, excess = {}, {}
        for at in few[:MAX_FEATURES]:
            left_out = np.isin(sample.values[:, at], every[at][1:-1:2])
            known, rest = sample.select(np.flatnonzero(~left_out)), sample.select(np.flatnonzero(left_out))
            if len(known) < max(FEWEST, MIN_SHARE * len(sample)):
                continue
            ratio = float(np.quantile(score(rest, refit(known)(rest.values)), LEVEL)) / usual
            levels[at], excess[at] = every[at], EXCESS * max(ratio**2 - 1, 0.0)
        return cls(levels, excess)

    def factors(self, values: Floats) -> Floats:
        """Factors by which the limits of rows of features are farther, 1 where each value is one of the levels."""
        squares = np.ones(len(values))
        for at, known in self.levels.items():
            squares += np.where(np.isin(values[:, at], known), 0.0, self.excess[at])
        return np.sqrt(squares)
