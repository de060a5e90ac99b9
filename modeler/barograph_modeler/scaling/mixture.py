"""A weighted mixture of Student's t distributions, one per possible shape, which may be stretched about a centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, stdtr, stdtrit

from barograph_modeler.maxima.sample import Floats

PRECISION: Final = 1e-9


@dataclass(frozen=True)
class Mixture:
    """Columns of one length, or one number for all components; weights have sum 1. freedom: degrees of freedom.

    below, above: factors by which the distances of a component's values from `centre` are multiplied, on each side.
    """

    weights: Floats
    means: Floats
    spreads: Floats
    freedom: float | Floats
    centre: float | Floats = 0.0
    below: float | Floats = 1.0
    above: float | Floats = 1.0

    @classmethod
    def single(cls, mean: float, spread: float, freedom: float) -> Mixture:
        """A mixture of one component."""
        return cls(np.ones(1), np.array([mean]), np.array([spread]), freedom)

    @classmethod
    def joined(cls, parts: Sequence[tuple[float, Mixture]]) -> Mixture:
        """A mixture of mixtures. parts: weights with sum 1, and mixtures."""
        every = [one for _, one in parts]
        return cls(
            np.concatenate([share * one.weights for share, one in parts]),
            _column([one.means for one in every], every),
            _column([one.spreads for one in every], every),
            _column([one.freedom for one in every], every),
            _column([one.centre for one in every], every),
            _column([one.below for one in every], every),
            _column([one.above for one in every], every),
        )

    def widened(self, below: float, above: float) -> Mixture:
        """The mixture with every distance from the median multiplied by a factor: one below the median, one above.

        Not for mixtures that are stretched already.
        """
        return replace(self, centre=self.quantile(0.5), below=below, above=above)

    def shifted(self, distance: float) -> Mixture:
        """The mixture of all values plus `distance`."""
        return replace(self, means=self.means + distance, centre=self.centre + distance)

    def quantile(self, p: float) -> float:
        """The p-quantile. p: between 0 and 1, both excluded."""
        reach = self._stretched(self.means + self.spreads * stdtrit(self.freedom, p))
        # The quantile of a mixture lies between the smallest and the largest of its components' quantiles.
        low, high = float(reach.min()), float(reach.max())
        return float(brentq(lambda x: self._below(x) - p, low - PRECISION, high + PRECISION, xtol=PRECISION))

    def tail(self, x: float) -> float:
        """The probability of more than x."""
        return 1 - self._below(x)

    def log_density(self, x: float) -> float:
        """The logarithm of the density at x."""
        half = (np.asarray(self.freedom) + 1) / 2
        z = (self._unstretched(x) - self.means) / self.spreads
        logs = gammaln(half) - gammaln(half - 0.5) - 0.5 * np.log(np.pi * np.asarray(self.freedom))
        logs = logs - half * np.log1p(z**2 / self.freedom) - np.log(self.spreads * self._factor(x))
        return float(logsumexp(logs, b=self.weights))

    def _below(self, x: float) -> float:
        return float(self.weights @ stdtr(self.freedom, (self._unstretched(x) - self.means) / self.spreads))

    def _factor(self, x: float | Floats) -> Floats:
        return np.where(np.asarray(x) < self.centre, self.below, self.above)

    def _stretched(self, values: Floats) -> Floats:
        return np.asarray(self.centre + (values - self.centre) * self._factor(values))

    def _unstretched(self, x: float) -> Floats:
        return np.asarray(self.centre + (x - self.centre) / self._factor(x))


def _column(values: Sequence[float | Floats], parts: Sequence[Mixture]) -> Floats:
    return np.concatenate([np.broadcast_to(one, part.weights.shape) for one, part in zip(values, parts, strict=True)])
