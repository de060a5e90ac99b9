"""A queue into a thread that waits in a ZeroMQ poll: `put` wakes the poll up."""

from __future__ import annotations

import os
import queue
from typing import Generic, TypeVar

T = TypeVar("T")


class WakeupQueue(Generic[T]):
    """Any thread puts; one thread polls `fileno` and takes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """A descriptor that is readable while there are items."""
        return self._event

    def put(self, item: T) -> None:
        """Append an item and wake up the poll."""
        self._queue.put(item)
        os.eventfd_write(self._event, 1)

    def take(self) -> list[T]:
        """Remove and return all items. Call it when `fileno` is readable."""
        os.eventfd_read(self._event)
        items: list[T] = []
        while not self._queue.empty():
            items.append(self._queue.get())
        return items

    def close(self) -> None:
        """Close the descriptor; nothing may be put any more."""
        os.close(self._event)
