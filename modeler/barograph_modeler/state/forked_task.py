"""Runs a task in a forked child, on the memory as of the fork, while the parent continues."""

from __future__ import annotations

import errno
import gc
import os
import signal
from collections.abc import Callable
from typing import Final, NoReturn

NICENESS: Final = 10
_BROKEN: Final = 255


class ForkedTask:
    """Runs one task at a time. Not thread-safe."""

    def __init__(self) -> None:
        self._child = 0

    @property
    def busy(self) -> bool:
        """Whether a task was started whose result has not been fetched by `result`."""
        return self._child != 0

    def start(self, work: Callable[[], None]) -> None:
        """Start a task. `work` may write files but not use sockets, threads or locks of the parent. During the fork no
        other thread may be inside a numerical library: see `Gate`."""
        # Threads that serve metrics may run: they hold no lock needed to pickle or write a file.
        child = os.fork()
        if child == 0:
            _work(work)
        self._child = child

    def result(self, *, wait: bool = False) -> str | None:
        """The result of the task: None while it runs, empty on success, else the reason of the failure."""
        child, status = os.waitpid(self._child, 0 if wait else os.WNOHANG)
        if child == 0:
            return None
        self._child = 0
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return ""
        return os.strerror(code) if code in errno.errorcode else f"the writing process ended with status {code}"

    def stop(self) -> None:
        """Kill the task if one runs."""
        if self.busy:
            os.kill(self._child, signal.SIGKILL)
            self.result(wait=True)


def _work(work: Callable[[], None]) -> NoReturn:
    status = _BROKEN
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # Garbage collection would write to, and so copy, every page that the child shares with its parent.
        gc.disable()
        os.nice(NICENESS)
        work()
        status = 0
    except OSError as error:
        status = error.errno or _BROKEN
    finally:
        os._exit(status)
