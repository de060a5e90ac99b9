"""How long raw rows are kept: whole days go, the oldest first, by age and by size. What they add up to stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Retention:
    """days: so many before today are kept. bytes: the database may use as many; 0 for no limit, either way.

    The newest day is never dropped: its table is the one that grows.
    """

    days: int = 0
    bytes: int = 0

    def is_due(self, day: int, today: int, used_bytes: Callable[[], int]) -> bool:
        """Whether the oldest day, counted like `today`, has to go."""
        return bool((self.days and day < today - self.days) or (self.bytes and used_bytes() > self.bytes))


KEEP_ALL: Final = Retention()
