"""Retention of raw rows: whole days are dropped, the oldest first, by age and by size. Roll-ups are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Retention:
    """days: number of days kept before today. bytes: size limit of the database. 0: no limit.

    The newest day is never dropped.
    """

    days: int = 0
    bytes: int = 0

    def is_due(self, day: int, today: int, used_bytes: Callable[[], int]) -> bool:
        """Whether to drop the oldest day. `day` and `today` count days from 1970-01-01."""
        return bool((self.days and day < today - self.days) or (self.bytes and used_bytes() > self.bytes))


KEEP_ALL: Final = Retention()
