"""Retention of raw rows: whole days are dropped, the oldest first, by age and by size. Roll-ups are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Retention:
    """days: number of days kept before today. bytes: size limit of the database. 0: no limit.

    The newest day is never dropped.
    """

    days: int = 0
    bytes: int = 0


KEEP_ALL: Final = Retention()
