"""What runs of another length take: setup + n pace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

MIN_LENGTH: Final = 16
"""Smaller numbers are counts of intervals by chance."""
DRIFT: Final = 0.05
"""Spread of the logarithm of the time per iteration, for each e-fold between the lengths."""
UNSEEN: Final = 1.0
"""Spread of the logarithm of setup over pace, for each e-fold between ranks and size and the nearest that are known."""


Numbers = tuple[float, ...]


class LengthScale(NamedTuple):
    """Medians of the runs at one scale and size: seconds that do not depend on the length, and seconds per iteration.

    size: the numbers that make up the size of the problem, without the length.
    """

    ranks: int
    setup_seconds: float
    pace_seconds: float
    size: Numbers = ()

    def distance(self, ranks: int, size: Numbers) -> float:
        """In e-folds of ranks and of each number of a size; of the ranks alone where the size is not known."""
        pairs = zip(self.size, size, strict=True) if len(size) == len(self.size) else ()
        return math.hypot(math.log(self.ranks / ranks), *(math.log(own / other) for own, other in pairs))


class LengthLaw(NamedTuple):
    """The runtime of a work as setup + n pace. name: of the parameter that is n. values: that have run, as text.

    others: names of the numbers in the size of a scale.
    """

    name: str
    values: tuple[str, ...]
    scales: tuple[LengthScale, ...]
    others: tuple[str, ...] = ()

    def nearest(self, text: str) -> str | None:
        """The value that has run and is nearest to one that has not; None if the text is no length, or has run."""
        asked = length_of(text)
        if not asked or any(length_of(one) == asked for one in self.values):
            return None
        return min(self.values, key=lambda one: abs(math.log(length_of(one) / asked)))

    def ratio(self, ranks: int, known: int, asked: int, size: Numbers = ()) -> tuple[float, float]:
        """The runtime of one length over that of another, and the spread of its logarithm."""
        at = self._nearest_scale(ranks, size)
        away = at.distance(ranks, size)
        setup = at.setup_seconds / at.pace_seconds  # in iterations

        def log(setup: float) -> float:
            return math.log((setup + asked) / (setup + known))

        unseen = abs(log(setup * math.exp(UNSEEN * away)) - log(setup * math.exp(-UNSEEN * away))) / 2
        return math.exp(log(setup)), math.hypot(unseen, DRIFT * math.log(asked / known))

    def text(self, ranks: int, size: Numbers = ()) -> str:
        """The assumption, as one sentence."""
        at = self._nearest_scale(ranks, size)
        setup, pace = f"{at.setup_seconds:.3g} s", f"{at.pace_seconds:.3g} s"
        where = "" if at.ranks == ranks else f" on {at.ranks} ranks"
        return f"A run takes {setup}{where} and {pace} for each of {self.name}, which the number of intervals follows."

    def _nearest_scale(self, ranks: int, size: Numbers) -> LengthScale:
        return min(self.scales, key=lambda one: one.distance(ranks, size))


class OtherLength(NamedTuple):
    """A question about a length that has not run. known: the nearest one that has. size: empty if unknown."""

    law: LengthLaw
    known: int
    asked: int
    size: Numbers = ()

    def ratio(self, ranks: int) -> tuple[float, float]:
        """The runtime of the length that is asked for over that of the known one, and the spread of its logarithm."""
        return self.law.ratio(ranks, self.known, self.asked, self.size)

    def text(self, ranks: int) -> str:
        """The assumption, as one sentence."""
        return self.law.text(ranks, self.size)


def length_of(text: str) -> int:
    """The whole number of at least MIN_LENGTH that a text is; 0 if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= MIN_LENGTH else 0


def other_length(law: LengthLaw | None, params: Mapping[str, str]) -> OtherLength | None:
    """What a question asks beyond the lengths that have run."""
    text = params.get(law.name, "") if law is not None else ""
    if law is None or (known := law.nearest(text)) is None:
        return None
    return OtherLength(law, length_of(known), length_of(text))
