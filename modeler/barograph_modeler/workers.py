"""Fits by other processes: of this machine, or of a Dask cluster. The modeler never waits for them."""

from __future__ import annotations

import importlib.metadata
import logging
import multiprocessing
import os
import threading
from asyncio import CancelledError
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from barograph_agent.system.clock import CLOCK

TASK_SECONDS: Final = 60.0
"""Workers that have a task for longer have failed: they are none, too busy, or gone without a word."""
RETRY_SECONDS: Final = 60.0
"""Pause after a failure."""
IDLE_SECONDS: Final = 60.0
"""Workers without a task for so long end."""
TASKS_PER_PROCESS: Final = 4
MAX_TASKS: Final = 32
"""Tasks in flight on a cluster."""
CONNECT_SECONDS: Final = 10
NICENESS: Final = 10
Key = TypeVar("Key", bound=Hashable)
Started: TypeAlias = tuple[Executor, Callable[[], Any]]
"""An executor, and what ends it."""
_log = logging.getLogger(__name__)


class OtherVersion(RuntimeError):
    """A worker has another version than the modeler. The message has both."""


def version() -> str:
    """The version of this package."""
    return importlib.metadata.version("barograph")


def call_as(expected: str, task: Callable[[], Any]) -> Any:
    """The result of a task. Raises OtherVersion unless this process has that version of the package."""
    if expected != version():
        raise OtherVersion(f"the worker has barograph {version()}, expected {expected}")
    return task()


class Workers(Generic[Key]):
    """Tasks that other processes do, by key. Used by one thread; no method blocks.

    name: for logs. start: starts or connects to them; other threads call it, at the first task and after a failure. It
    raises what prevents it. tasks: limit on those in flight. done, failures: number of tasks done, and of failures.
    A failure gives up all tasks in flight, and none is taken for RETRY_SECONDS.
    """

    def __init__(
        self, name: str, start: Callable[[], Started], tasks: int, clock: Callable[[], float] = CLOCK.monotonic
    ) -> None:
        self.name, self.tasks = name, tasks
        self.done = self.failures = 0
        self.is_failed = False
        """Whether the last that is known of them is a failure."""
        self._start, self._clock = start, clock
        self._threads = ThreadPoolExecutor(tasks + 1, "workers")
        """A thread waits for each task, one for the start or the end."""
        self._started: Future[Started] | None = None
        self._sent: dict[Key, Future[Any]] = {}
        self._retry_at = self._used_at = clock()

    def __contains__(self, key: Key) -> bool:
        return key in self._sent

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def keys(self) -> list[Key]:
        """Keys of the tasks in flight, in the order of `send`."""
        return list(self._sent)

    @property
    def free(self) -> int:
        """How many tasks are taken now."""
        return 0 if self._clock() < self._retry_at else self.tasks - len(self._sent)

    def send(self, key: Key, function: Callable[..., Any], *arguments: Any) -> None:
        """Send a task. function: of a module."""
        self._used_at = self._clock()
        if self._started is None:
            self._started = self._threads.submit(self._start)
        self._sent[key] = self._threads.submit(_compute, self._started, partial(function, *arguments))

    def poll(self) -> list[tuple[Key, Any]]:
        """Tasks that are over and their results; None for those that were not done."""
        now, over = self._clock(), list[tuple[Key, Any]]()
        try:
            for key in [key for key, future in self._sent.items() if future.done()]:
                over.append((key, self._sent[key].result()))
                del self._sent[key]
                self.done += 1
        except Exception as error:
            self._fail(error)
            over += [(key, None) for key in self._sent]
            self._sent.clear()
            return over
        if over:
            if self.is_failed:
                _log.info("%s: fits again", self.name)
            self.is_failed, self._used_at = False, now
        if not self._sent and now > self._used_at + IDLE_SECONDS:
            self._leave()
        return over

    def close(self) -> None:
        """End the workers; tasks in flight are lost."""
        self._leave()
        self._threads.shutdown(wait=False)
        self._sent.clear()

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        if not self.is_failed:
            text = "%s: %s; the modeler fits by itself, and tries again in %g seconds"
            _log.warning(text, self.name, f"{type(error).__name__}: {error}"[:300], RETRY_SECONDS)
        self.is_failed, self._retry_at = True, self._clock() + RETRY_SECONDS
        self._leave()

    def _leave(self) -> None:
        if self._started is not None:
            self._threads.submit(lambda started: started.result()[1](), self._started)
        self._started = None


def _compute(started: Future[Started], task: Callable[[], Any]) -> Any:
    try:
        return started.result()[0].submit(call_as, version(), task).result(TASK_SECONDS)
    except CancelledError as error:  # no Exception, where it is asyncio's
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def local_processes(count: int) -> Started:
    """Processes of this machine, at a low priority. They end with the modeler."""
    # Not forked: other threads of the modeler may hold locks.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, _begin, (os.nice(0) + NICENESS,))

    def end() -> None:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()

    return pool, end


def dask_cluster(address: str) -> Started:
    """A Dask cluster whose workers have this package. address: of its scheduler, such as tcp://host:8786.

    Raises ModuleNotFoundError without the package `distributed`, and OSError where nothing answers.
    """
    import distributed

    connect: Any = distributed.Client
    client = connect(address, timeout=CONNECT_SECONDS, set_as_default=False, name=f"barograph-{version()}")
    return client.get_executor(pure=False), partial(client.close, CONNECT_SECONDS)


def _begin(niceness: int) -> None:
    """The first thing in a local process."""
    os.nice(max(niceness - os.nice(0), 0))
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
