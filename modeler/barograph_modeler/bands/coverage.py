"""The scoreboard: what bands have held of what came after them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Coverage:
    """New values that a band stood for, counted before they were learned; those of jobs that alarmed stand apart."""

    inside: int = 0
    outside: int = 0
    withheld_inside: int = 0
    withheld_outside: int = 0

    @property
    def ratio(self) -> float:
        """Share of the healthy values that lay inside; NaN before the first."""
        judged = self.inside + self.outside
        return self.inside / judged if judged else math.nan

    def count(self, inside: int, outside: int, *, healthy: bool) -> None:
        """Add what one look at a band gave."""
        if healthy:
            self.inside += inside
            self.outside += outside
        else:
            self.withheld_inside += inside
            self.withheld_outside += outside
