"""A weighted mixture of Student's t distributions, one per possible shape, which may be stretched about a centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import gammaln, logsumexp, stdtr, stdtrit

from barograph_modeler.maxima.sample import Floats

PRECISION: Final = 1e-9
"""Of quantiles, in log seconds."""
MAX_STEPS: Final = 100
"""Of Newton's method; half a dozen are usual, and 50 halve any bracket often enough."""
TINY: Final = 1e-300


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
            np.concatenate([one.means for one in every]),
            np.concatenate([one.spreads for one in every]),
            *(_column(name, every) for name in ("freedom", "centre", "below", "above")),
        )

    def widened(self, below: float, above: float) -> Mixture:
        """The mixture with every distance from the median multiplied by a factor: one below the median, one above.

        Not for mixtures that are stretched already.
        """
        return replace(self, centre=self.quantile(0.5), below=below, above=above)

    def plain(self) -> Mixture:
        """The mixture as it was before it was widened."""
        return replace(self, centre=0.0, below=1.0, above=1.0)

    def shifted(self, distance: float) -> Mixture:
        """The mixture of all values plus `distance`."""
        return replace(self, means=self.means + distance, centre=self.centre + distance)

    def quantile(self, p: float) -> float:
        """The p-quantile. p: between 0 and 1, both excluded."""
        return float(self.quantiles([p])[0])

    def quantiles(self, p: Sequence[float]) -> Floats:
        """The p-quantiles, found together by Newton's method within a bracket: (levels,)."""
        if np.ndim(self.centre) == 0 and not self._is_plain:
            return self._stretched(self.plain().quantiles(p))
        levels = np.array(p)
        reach = self._stretched(self.means + self.spreads * self._units(levels))
        # A quantile of the mixture lies between the smallest and the largest of its components' quantiles.
        low, high = reach.min(axis=1), reach.max(axis=1)
        x, power = reach @ self.weights, -(np.asarray(self.freedom) + 1) / 2
        peaks = self.weights * np.exp(_log_peak(self.freedom)) / self.spreads
        for _ in range(MAX_STEPS):
            z = self._standardized(x)
            missing = levels - stdtr(self.freedom, z) @ self.weights
            slopes = (1 + z * z / self.freedom) ** power
            slope = (slopes if self._is_plain else slopes / self._factor(x[:, None])) @ peaks
            low, high = np.where(missing > 0, x, low), np.where(missing > 0, high, x)
            found = x + missing / (slope + TINY)
            is_inside = (low - PRECISION <= found) & (found <= high + PRECISION)
            found = np.where(is_inside, found, (low + high) / 2)
            if np.abs(found - x).max() < PRECISION:
                return found
            x = found
        return x

    def tail(self, x: float) -> float:
        """The probability of more than x."""
        return 1 - float(stdtr(self.freedom, self._standardized(x)) @ self.weights)

    def log_density(self, x: float) -> float:
        """The logarithm of the density at x."""
        z = self._standardized(x)
        logs = _log_peak(self.freedom) - (np.asarray(self.freedom) + 1) / 2 * np.log1p(z**2 / self.freedom)
        return float(logsumexp(logs - np.log(self.spreads * self._factor(x)), b=self.weights))

    @property
    def _is_plain(self) -> bool:
        """Whether nothing is stretched."""
        return np.ndim(self.centre) == 0 and self.below == 1.0 == self.above

    def _units(self, levels: Floats) -> Floats:
        """Quantiles of each component in spreads from its mean: (levels, components)."""
        if np.ndim(self.freedom) == 0:
            return np.asarray(stdtrit(self.freedom, levels[:, None]))
        kinds, kind = np.unique(self.freedom, return_inverse=True)
        return np.asarray(stdtrit(kinds, levels[:, None])[:, kind])

    def _factor(self, x: float | Floats) -> Floats:
        return np.where(np.less(x, self.centre), self.below, self.above)

    def _stretched(self, values: Floats) -> Floats:
        return values if self._is_plain else np.asarray(self.centre + (values - self.centre) * self._factor(values))

    def _standardized(self, x: float | Floats) -> Floats:
        """Values in spreads from the mean of each component: a row for each value."""
        values = x if np.ndim(x) == 0 else np.asarray(x)[:, None]
        if not self._is_plain:
            values = self.centre + (values - self.centre) / self._factor(values)
        return np.asarray((values - self.means) / self.spreads)


def _log_peak(freedom: float | Floats) -> Floats:
    """The logarithm of the density of Student's t at 0."""
    half = (np.asarray(freedom) + 1) / 2
    return np.asarray(gammaln(half) - gammaln(half - 0.5) - 0.5 * np.log(np.pi * np.asarray(freedom)))


def _column(name: str, parts: Sequence[Mixture]) -> float | Floats:
    """One value for all components where the parts have the same one, else one for each."""
    values = [getattr(part, name) for part in parts]
    if all(np.ndim(one) == 0 and one == values[0] for one in values):
        return float(values[0])
    return np.concatenate([np.broadcast_to(one, part.weights.shape) for one, part in zip(values, parts, strict=True)])
