"""How long raw rows are kept: whole days go, the oldest first, by age and by size. What they add up to stays."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


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


def size(text: str) -> int:
    """Bytes, from a number with K, M, G or T behind it (powers of 1024). Raises argparse.ArgumentTypeError."""
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, expected bytes, or as in 500G with K, M, G or T")
    return int(match[1]) * _UNITS[match[2]]
