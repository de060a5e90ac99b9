"""The queue of classes to be refitted."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Final, TypeAlias

Key: TypeAlias = tuple[str, int]
"""A workload and one of its classes."""

_STALE: Final = 64


class Backlog:
    """Alternately returns the class of the highest priority and the class that has waited longest.

    No class is starved: with n classes before it, a class is among the next 2 n + 2 that are returned, whatever is
    added meanwhile.

    >>> backlog = Backlog()
    >>> for class_id, priority in ((1, 0.1), (2, 0.9), (3, 0.5)):
    ...     backlog.add(("w", class_id), priority)
    >>> [backlog.pop() for _ in range(4)]
    [('w', 2), ('w', 1), ('w', 3), None]
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[Key, float] = OrderedDict()
        self._heap: list[tuple[float, Key]] = []
        self._oldest_next = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key, priority: float) -> None:
        """Add a class, or change the priority of a waiting one, which keeps its waiting time."""
        self._waiting[key] = priority
        heapq.heappush(self._heap, (-priority, key))
        # Outdated entries are skipped by `pop`, and removed here once they are many.
        if len(self._heap) > 4 * len(self._waiting) + _STALE:
            self._heap = [(-other, waiting) for waiting, other in self._waiting.items()]
            heapq.heapify(self._heap)

    def discard(self, key: Key) -> None:
        """Remove a class if it is waiting."""
        self._waiting.pop(key, None)

    def pop(self) -> Key | None:
        """Remove and return the next class; None if none is waiting."""
        if not self._waiting:
            return None
        key = next(iter(self._waiting)) if self._oldest_next else self._most_urgent()
        self._oldest_next = not self._oldest_next
        del self._waiting[key]
        return key

    def _most_urgent(self) -> Key:
        while True:
            priority, key = heapq.heappop(self._heap)
            if self._waiting.get(key) == -priority:
                return key
