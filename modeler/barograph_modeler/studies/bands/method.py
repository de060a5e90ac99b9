"""What a method of the back-test is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from barograph_modeler.maxima.predictive import SeriesLimits
from barograph_modeler.maxima.sample import Floats

SEED: Final = 1


class HasLimits(Protocol):
    """Whatever has two limits."""

    @property
    def lower(self) -> float:
        """The lower limit, in the unit of the values; itself inside."""

    @property
    def upper(self) -> float:
        """The upper limit."""


Fit = Callable[[Floats], HasLimits | None]
Follow = Callable[[Floats], SeriesLimits]
Project = Callable[[Mapping[float, Floats], float], HasLimits | None]


@dataclass(frozen=True)
class BandMethod:
    """What a method can do; None for what it cannot.

    fit: history to a band for later values. follow: for each value the limits learned from those before it, by a
    method that decides itself what to refit; where None and `refits`, fit does it. project: samples by scale and a
    larger scale to a band there. continued: in a half-half comparison it goes on learning from values once scored.
    """

    name: str
    help: str
    fit: Fit | None = None
    follow: Follow | None = None
    project: Project | None = None
    refits: bool = True
    continued: bool = False


@dataclass(frozen=True)
class Range:
    """A pair of limits."""

    lower: float
    upper: float


def of_largest(fit: Callable[[Floats, float], HasLimits | None]) -> Project:
    """Projects from the largest scale by the factor to the target."""
    return lambda samples, scale: fit(samples[max(samples)], scale / max(samples))
