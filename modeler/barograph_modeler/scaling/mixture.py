"""A weighted mixture of Student's t distributions, one per possible shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, stdtr, stdtrit

from barograph_modeler.maxima.sample import Floats

PRECISION: Final = 1e-9


@dataclass(frozen=True)
class Mixture:
    """Columns of one length; weights have sum 1. freedom: degrees of freedom, one number or one per component."""

    weights: Floats
    means: Floats
    spreads: Floats
    freedom: float | Floats

    @classmethod
    def single(cls, mean: float, spread: float, freedom: float) -> Mixture:
        """A mixture of one component."""
        return cls(np.ones(1), np.array([mean]), np.array([spread]), freedom)

    @classmethod
    def joined(cls, parts: Sequence[tuple[float, Mixture]]) -> Mixture:
        """A mixture of mixtures. parts: weights with sum 1, and mixtures."""
        return cls(
            np.concatenate([share * one.weights for share, one in parts]),
            np.concatenate([one.means for _, one in parts]),
            np.concatenate([one.spreads for _, one in parts]),
            np.concatenate([np.broadcast_to(one.freedom, one.means.shape) for _, one in parts]),
        )

    def widened(self, factor: float) -> Mixture:
        """The mixture with every distance from the median multiplied by `factor`."""
        median = self.quantile(0.5)
        return Mixture(self.weights, median + factor * (self.means - median), factor * self.spreads, self.freedom)

    def quantile(self, p: float) -> float:
        """The p-quantile. p: between 0 and 1, both excluded."""
        reach = self.spreads * stdtrit(self.freedom, p)
        # The quantile of a mixture lies between the smallest and the largest of its components' quantiles.
        low, high = float((self.means + reach).min()), float((self.means + reach).max())
        return float(brentq(lambda x: self._below(x) - p, low - PRECISION, high + PRECISION, xtol=PRECISION))

    def log_density(self, x: float) -> float:
        """The logarithm of the density at x."""
        half = (np.asarray(self.freedom) + 1) / 2
        z = (x - self.means) / self.spreads
        logs = gammaln(half) - gammaln(half - 0.5) - 0.5 * np.log(np.pi * np.asarray(self.freedom))
        logs = logs - half * np.log1p(z**2 / self.freedom) - np.log(self.spreads)
        return float(logsumexp(logs, b=self.weights))

    def _below(self, x: float) -> float:
        return float(self.weights @ stdtr(self.freedom, (x - self.means) / self.spreads))
