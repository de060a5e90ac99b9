"""A running collector for tests, in this process or in one of its own, and a producer that says what it is told."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from unittest.mock import patch

import numpy as np
import zmq

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.protocol import wire
from barograph_collector.ingest import writer
from barograph_collector.lake.sealer import Sealer
from barograph_collector.server import Collector
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.store import PERIOD_SECONDS, Store

DEADLINE_SECONDS = 300.0
"""Only what hangs reaches it, on however busy a machine."""
PAUSES = 4
MAX_PAUSE_SECONDS = 0.5
"""Pauses are so many times as long as looks, but no longer than this for their sake."""
M = TypeVar("M", bound=wire.FromCollector)


def wait_until(
    condition: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS, every: float = 0.005
) -> None:
    """Poll until the condition holds; fails with `what` once the deadline has passed.

    every: seconds between two looks, PAUSES times as many as a look takes at least: it must not keep busy, or from a
    lock, what it waits for.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return
        ended = time.monotonic()
        assert ended < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(max(every, min(PAUSES * (ended - began), MAX_PAUSE_SECONDS)))


def blocks(rows: int, first: int = 0, job: str = "test/1.0.0") -> dict[str, Any]:
    """Values for `rows` rows of the table blocks, told apart by first_index = first, first + 1, ... ."""
    seconds = np.linspace(0.1, 0.2, rows)
    return {
        "job": job,
        "world": 0,
        "class_id": np.full(rows, 2**63 + 1, dtype=np.uint64),
        "first_index": np.arange(first, first + rows),
        "count": 1,
        "sum_seconds": seconds,
        "sum_squares": seconds**2,
        "sum_cubes": seconds**3,
        "min_seconds": seconds,
        "max_seconds": seconds,
        "ended_at": 1e9 + seconds,
    }


@contextmanager
def collector_on(
    path: Path,
    listen: str = "tcp://127.0.0.1:0",
    sealer_of: Callable[[Store], Sealer | None] = lambda store: None,
    lake: DataPath | None = None,
    period_seconds: float = PERIOD_SECONDS,
    **options: Any,
) -> Iterator[Collector]:
    """A collector in this process, over the database at `path`; options are the collector's.

    A read of it waits for what is durable, however long the disk takes for that.
    """
    with (
        patch.object(writer, "SETTLE_SECONDS", DEADLINE_SECONDS),
        Store(path, lake=lake, period_seconds=period_seconds) as store,
    ):
        collector = Collector(store, listen, sealer=sealer_of(store), **options)
        collector.start()
        try:
            yield collector
        finally:
            assert collector.stop(DEADLINE_SECONDS)
            assert collector.failure is None


class Producer:
    """A bare DEALER."""

    def __init__(self, endpoint: str, stream: str = "producer", key: ClientKey | None = None) -> None:
        self.stream = stream
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDTIMEO, int(DEADLINE_SECONDS * 1000))
        if key is not None:
            key.apply(self.socket)
        self.socket.connect(endpoint)

    def send(self, message: wire.FromClient) -> None:
        """Send one message, whatever it says."""
        self.socket.send(wire.encode(message))

    def receive(self, kind: type[M]) -> M:
        """The next message from the collector, which must be of this kind."""
        assert self.socket.poll(int(DEADLINE_SECONDS * 1000)), f"no answer within {DEADLINE_SECONDS:g} s"
        message = wire.decode_from_collector(self.socket.recv())
        assert isinstance(message, kind), message
        return message

    def hello(self, credential: str = "") -> wire.Welcome:
        """Open the stream."""
        self.send(wire.Hello(self.stream, credential=credential))
        return self.receive(wire.Welcome)

    def append(self, seq: int, table: str, rows: int, values: Mapping[str, Any]) -> None:
        """Send rows; receives nothing."""
        self.send(wire.append(self.stream, seq, table, rows, values))

    def receive_ack(self, seq: int) -> None:
        """Receive acknowledgements until one covers `seq`."""
        while self.receive(wire.Ack).seq < seq:
            pass

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Daemon:
    """`barograph collector` as a process of its own, on free ports; ready when constructed."""

    program = ("-m", "barograph_collector.main")
    """What Python is to run."""

    def __init__(self, state: Path, *options: str, listen: str = "tcp://127.0.0.1:0") -> None:
        command = [sys.executable, *self.program, "--state", str(state), *options]
        command += ["--listen", listen, "--metrics", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        before: list[str] = []
        for line in self.process.stderr:
            before.append(line)
            if "listening on" in line:
                break
        self.first_line = before[-1] if before else ""
        self.log: list[str] = []
        self._drain = threading.Thread(target=self.log.extend, args=(self.process.stderr,))
        self._drain.start()
        ready = re.search(r"listening on (\S+), log in \S+, metrics on (\S+);", self.first_line)
        if ready is None:
            self.end(signal.SIGKILL)
        assert ready, f"status {self.process.wait()}: {''.join([*before, *self.log])}"
        self.endpoint, self.metrics_url = ready.groups()

    def end(self, number: signal.Signals) -> int:
        """Send a signal, if it still runs, and wait for the end; returns the exit status as Popen does."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end."""
        status = self.process.wait(DEADLINE_SECONDS)
        self._drain.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        elif self.process.stderr and not self.process.stderr.closed:
            self.wait()
