"""What a predictor answers: a distribution of the runtime, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from barograph_modeler.scaling.mixture import Mixture


@dataclass(frozen=True)
class Prediction:
    """A distribution of the runtime at one scale: expected_seconds is its median, the limits hold 95 % of it.

    model: the kinds of shapes that made it and their weights, largest first, which sum to 1. runs, scales,
    largest_ranks: what it rests on; all 0 where the problem itself was never seen. pooled_from: other problems of the
    application that had a part. conditions: what must hold for it to be right; warnings: what speaks against it.
    """

    expected_seconds: float
    lower_seconds: float
    upper_seconds: float
    model: dict[str, float]
    runs: int
    scales: int
    largest_ranks: int
    pooled_from: int
    conditions: tuple[str, ...]
    warnings: tuple[str, ...]
    logarithms: Mixture = field(repr=False, compare=False)
    """Of log seconds."""

    def quantile(self, p: float) -> float:
        """Seconds that the run stays below with probability p. p: between 0 and 1, both excluded."""
        if not 0 < p < 1:
            raise ValueError(f"p is {p}, expected a number between 0 and 1, both excluded")
        return float(np.exp(self.logarithms.quantile(p)))


@dataclass(frozen=True)
class Refusal:
    """No prediction. reason: one sentence."""

    reason: str
