"""Simulated jobs that send like sidecars: many producers with the agent's link, wire format and outbox."""

from __future__ import annotations

import heapq
import random
import select
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import zmq

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Acked, Memory
from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_agent.system.network import Network
from barograph_agent.system.system import SYSTEM

_SWEEP_SECONDS: Final = 1.0
"""Longest time between pumps of a link, for its timers: the next hello, the timeout of answers."""


class TimedOutbox(Memory):
    """An outbox that records the time from `put` to acknowledgement of each message, in seconds."""

    def __init__(self) -> None:
        super().__init__(cap_messages=2**31)
        self.waits = array("d")
        self._put_at: dict[int, float] = {}

    def put(self, rows: int, frame: bytes) -> None:
        """Add a message."""
        self._put_at[self.next_seq] = time.monotonic()
        super().put(rows, frame)

    def ack(self, seq: int) -> Acked:
        """Remove the messages up to seq."""
        now = time.monotonic()
        self.waits.extend(now - self._put_at.pop(gone) for gone in range(self.first_seq, seq + 1))
        return super().ack(seq)


@dataclass
class SimulatedJob:
    """One simulated job step. columns: packed, without `first_index`. sent: number of intervals so far."""

    name: str
    link: Link
    outbox: TimedOutbox
    columns: dict[str, wire.Wire]
    sent: int = 0

    def append(self, rows: int) -> None:
        """Put one message of blocks."""
        packed = self.columns | {"first_index": np.arange(self.sent, self.sent + rows).tobytes()}
        message = wire.Append(self.link.stream, self.outbox.next_seq, "blocks", rows, packed)
        self.outbox.put(rows, wire.encode(message))
        self.sent += rows


@dataclass
class LoadReport:
    """Records acknowledged, the duration of the load, and the waits from append to acknowledgement in seconds."""

    records: int
    seconds: float
    waits: npt.NDArray[np.float64] = field(repr=False)


class Load:
    """`streams` jobs that send messages of `rows` records to one endpoint."""

    def __init__(
        self,
        endpoint: str,
        streams: int,
        rows: int,
        name: str,
        seed: int = 0,
        *,
        key: ClientKey | None = None,
        credential: Callable[[str], str] | None = None,
    ) -> None:
        """`name`: of the job whose restarts the jobs are. `key`, `credential`: as for a Link."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        # With a key, each link has a monitor, which takes two sockets.
        self._context.set(zmq.MAX_SOCKETS, (1 if key is None else 3) * streams + 16)
        self._rows = rows
        self._key = key
        self._credential = credential
        self._rng = np.random.default_rng(seed)
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, SimulatedJob] = {}
        self._swept_at = 0.0
        self.jobs = [self._job(endpoint, f"{name}.{number}.0", number) for number in range(streams)]

    def open(self, seconds: float) -> bool:
        """Wait until every stream is open; False on timeout."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._pump(0.05)
            if all(job.link.connected for job in self.jobs):
                return True
        return False

    def saturate(self, seconds: float, window: int) -> LoadReport:
        """Keep `window` messages of every stream unacknowledged for `seconds`, then wait for the rest."""
        began = time.monotonic()
        for job in self.jobs:
            self._fill(job, window)
        while time.monotonic() - began < seconds:
            for job in self._pump(0.05):
                self._fill(job, window)
        return self._finish(began)

    def pace(self, seconds: float, records_per_second: float) -> LoadReport:
        """Send at this total rate: each stream at even intervals with a random phase."""
        began = time.monotonic()
        step = self._rows * len(self.jobs) / records_per_second
        due = [(began + phase * step, number) for number, phase in enumerate(self._rng.random(len(self.jobs)))]
        heapq.heapify(due)
        while (now := time.monotonic()) - began < seconds:
            while due[0][0] <= now:
                at, number = due[0]
                heapq.heapreplace(due, (at + step, number))
                self.jobs[number].append(self._rows)
                self.jobs[number].link.pump()
            self._pump(min(max(due[0][0] - time.monotonic(), 0.0), 0.05))
        return self._finish(began)

    def close(self) -> None:
        """Close all connections."""
        for job in self.jobs:
            job.link.close()
        self._epoll.close()
        self._context.term()

    def _job(self, endpoint: str, name: str, number: int) -> SimulatedJob:
        outbox = TimedOutbox()
        link = Link(
            endpoint,
            f"{name}/load",
            outbox,
            key=self._key,
            credential=self._credential,
            system=SYSTEM._replace(network=Network(self._context), random=random.Random(number)),
        )
        job = SimulatedJob(name, link, outbox, self._columns(name))
        self._by_descriptor[link.fileno()] = job
        self._epoll.register(link.fileno(), select.EPOLLIN | select.EPOLLET)
        return job

    def _columns(self, job: str) -> dict[str, wire.Wire]:
        seconds = self._rng.gamma(4.0, 0.05, self._rows)
        values: dict[str, Any] = {
            "job": job,
            "world": 0,
            "class_id": self._rng.integers(2**60, 2**60 + 16, self._rows, dtype=np.uint64),
            "count": 1,
            "sum_seconds": seconds,
            "sum_squares": seconds**2,
            "sum_cubes": seconds**3,
            "min_seconds": seconds,
            "max_seconds": seconds,
            "ended_at": time.time() + np.cumsum(seconds),
        }
        # Packed once: the load shares the machine with the collector that it measures.
        return wire.pack(values, {name: kind for name, kind in TABLES["blocks"].columns.items() if name in values})

    def _fill(self, job: SimulatedJob, window: int) -> None:
        while job.outbox.next_seq - job.outbox.first_seq < window:
            job.append(self._rows)
        job.link.pump()

    def _pump(self, timeout: float) -> list[SimulatedJob]:
        """Pump the links whose sockets are ready, or all if the sweep is due; returns their jobs."""
        ready = [self._by_descriptor[descriptor] for descriptor, _ in self._epoll.poll(timeout)]
        now = time.monotonic()
        if now - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = now
            ready = self.jobs
        for job in ready:
            job.link.pump()
        return ready

    def _finish(self, began: float) -> LoadReport:
        while not all(job.link.idle for job in self.jobs):
            self._pump(0.05)
        seconds = time.monotonic() - began
        waits = np.concatenate([job.outbox.waits for job in self.jobs])
        return LoadReport(sum(job.link.acked_rows for job in self.jobs), seconds, waits)
