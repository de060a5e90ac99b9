"""A lock that many threads hold at once, or one thread exclusively."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Prevents a fork while other threads are inside numerical libraries.

    When a process forks, OpenBLAS ends its threads, also in the parent: a call in progress would never return.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Hold the gate with other threads; waits while it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self, seconds: float) -> Iterator[bool]:
        """Close the gate, and wait at most `seconds` until no thread holds it; yields whether none does."""
        with self._changed:
            self._closed = True
            empty = self._changed.wait_for(lambda: self._inside == 0, seconds)
        try:
            yield empty
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()
