"""Executors of fits: processes of this machine, and a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, Final, Protocol

from barograph_modeler.refits.batch import version

BATCHES_PER_PROCESS: Final = 4
"""A batch takes a third of a second, and the modeler looks for results each half second."""
MAX_BATCHES: Final = 128
"""On a cluster: enough for 40 workers, and 26 MB of windows."""
CONNECT_SECONDS: Final = 10
NICENESS: Final = 10


class Workers(Protocol):
    """Where fits are done. No method blocks. name: for logs. batches: limit on those in flight."""

    name: str
    batches: int

    def executor(self) -> Executor | None:
        """The executor; None while it is being started or connected to. Raises what prevents it."""

    def close(self) -> None:
        """Give up what is in flight, and end or leave the executor; the next call of `executor` starts anew."""


class LocalProcesses:
    """Processes of this machine, at a low priority, started when they are first used. They end with the modeler."""

    def __init__(self, processes: int) -> None:
        self.name = f"{processes} local process{'es' if processes > 1 else ''}"
        self.batches = BATCHES_PER_PROCESS * processes
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def executor(self) -> Executor:
        """A pool of processes."""
        if self._pool is None:
            # Not forked: other threads of the modeler may hold locks.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._processes, context, _begin, (os.nice(0) + NICENESS,))
        return self._pool

    def close(self) -> None:
        """Kill the processes."""
        if (pool := self._pool) is not None:
            self._pool = None
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()


class DaskCluster:
    """A Dask cluster, whose workers have this package. address: of its scheduler, such as tcp://host:8786.

    connect: gives a client of it, and blocks. Raises ModuleNotFoundError without the package `distributed`.
    """

    batches = MAX_BATCHES

    def __init__(self, address: str, connect: Callable[[str], Any] | None = None) -> None:
        if connect is None:
            import distributed  # noqa: F401
        self.name = f"the Dask cluster at {address}"
        self._address = address
        self._connect = connect or _connect
        self._connecting: Future[Any] | None = None
        self._executor: Executor | None = None

    def executor(self) -> Executor | None:
        """The executor of a client, which a thread connects."""
        if self._executor is not None:
            return self._executor
        if self._connecting is None:
            self._connecting = _in_thread(self._connect, self._address)
        if not self._connecting.done():
            return None
        connecting, self._connecting = self._connecting, None
        self._client = connecting.result()
        self._executor = self._client.get_executor(pure=False)
        return self._executor

    def close(self) -> None:
        """Close the client in a thread: it may wait for a scheduler that is gone."""
        if self._executor is not None:
            self._executor = None
            _in_thread(self._client.close, CONNECT_SECONDS)


def _in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a function in a thread that does not keep the process from ending."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True, name="dask").start()
    return future


def _connect(address: str) -> Any:
    import distributed

    client: Any = distributed.Client
    return client(address, timeout=CONNECT_SECONDS, set_as_default=False, name=f"barograph-{version()}")


def _begin(niceness: int) -> None:
    """The first thing in a local process."""
    os.nice(max(niceness - os.nice(0), 0))
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
