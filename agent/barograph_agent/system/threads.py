"""Threads, and what they wait for each other with."""

from __future__ import annotations

import contextlib
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


class ThreadTask:
    """Work that may not end, as where a file system does not answer, in a thread of its own."""

    def __init__(self, threads: Threads, name: str, work: Callable[[], object]) -> None:
        self.result: Any = None
        """None before the end, and of work that has raised."""
        self.has_ended = False
        self._work, self._results = work, threads.queue()
        threads.start(name, self._run)

    def wait(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        if not self.has_ended and (seconds > 0 or not self._results.empty()):
            with contextlib.suppress(queue.Empty):
                self.result = self._results.get(timeout=max(seconds, 0.001))
                self.has_ended = True
        return self.has_ended

    def _run(self) -> None:
        result = None
        with contextlib.suppress(Exception):  # such as want of memory
            result = self._work()
        self._results.put(result)
