"""Least-recently-used dictionaries: ordered dictionaries with a limit on their entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def store(held: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    """Store a value as the most recent entry; beyond `limit` entries the least recent is removed."""
    held[key] = value
    held.move_to_end(key)
    if len(held) > limit:
        held.popitem(last=False)


def get(held: OrderedDict[K, V], key: K, make: Callable[[], V], limit: int) -> V:
    """The value of a key, made if there is none, as the most recent entry; evicts as `store`."""
    value = held[key] if key in held else make()
    store(held, key, value, limit)
    return value
