"""A queue into a thread that waits in a ZeroMQ poll: putting something in makes the poll return at once."""

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
        """Readable while something is in the box."""
        return self._event

    def put(self, item: T) -> None:
        """Hand something over."""
        self._queue.put(item)
        os.eventfd_write(self._event, 1)

    def take(self) -> list[T]:
        """Everything there is. Call it when `fileno` is readable."""
        os.eventfd_read(self._event)
        items: list[T] = []
        while not self._queue.empty():
            items.append(self._queue.get())
        return items

    def close(self) -> None:
        """Give the descriptor back; nobody may put any more."""
        os.close(self._event)
