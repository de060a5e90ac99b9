"""Dictionaries with a limit on their number of entries."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

T = TypeVar("T")


def remember(held: OrderedDict[str, T], key: str, value: T, limit: int) -> None:
    """Store the value; beyond `limit` entries the first one is removed."""
    held[key] = value
    if len(held) > limit:
        held.popitem(last=False)
