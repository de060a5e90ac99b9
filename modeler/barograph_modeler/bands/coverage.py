"""Out-of-sample coverage of bands."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Coverage:
    """Counts of values inside and outside the band in force before they were learned; alarmed jobs are kept apart."""

    inside: int = 0
    outside: int = 0
    withheld_inside: int = 0
    withheld_outside: int = 0

    @property
    def ratio(self) -> float:
        """Share of healthy values inside; NaN before the first."""
        judged = self.inside + self.outside
        return self.inside / judged if judged else math.nan

    def count(self, inside: int, outside: int, *, healthy: bool) -> None:
        """Add the counts of one comparison."""
        if healthy:
            self.inside += inside
            self.outside += outside
        else:
            self.withheld_inside += inside
            self.withheld_outside += outside
