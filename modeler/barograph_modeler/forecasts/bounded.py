"""Dictionaries that hold so much and no more."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

T = TypeVar("T")


def remember(held: OrderedDict[str, T], key: str, value: T, limit: int) -> None:
    """Keep the value; beyond `limit` of them the one that came first goes."""
    held[key] = value
    if len(held) > limit:
        held.popitem(last=False)
