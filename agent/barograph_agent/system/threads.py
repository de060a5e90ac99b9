"""Threads, and what they wait for each other with."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final


class Threads:
    """Threads of this process."""

    def start(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Start a daemon thread."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def lock(self) -> AbstractContextManager[bool]:
        """A lock that only one thread holds."""
        return threading.Lock()

    def queue(self) -> queue.SimpleQueue[Any]:
        """An unbounded queue."""
        return queue.SimpleQueue()

    def event(self) -> threading.Event:
        """A flag that can be waited for."""
        return threading.Event()


THREADS: Final = Threads()
