"""A collector whose life is cut off again and again, by every means there is, under producers that keep count.

What each producer was told is durable must be in the log, once, whatever happened; what it was not told must be there
at most once, and is sent again.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from barograph_agent.protocol import wire
from barograph_collector.storage.store import Store
from helpers.log import Daemon, Producer, blocks, wait_until
from helpers.network import Network

ACCIDENTS = (
    "kill",
    "kill and lose the write-ahead log",
    "kill and cut the write-ahead log",
    "kill and spoil its end",
    "kill and cut the journal behind what is durable",
    "full disk, then kill",
    "partition, then kill",
)

_GREETING = 10**9
"""Sent so far, as long as the welcome is due: nothing more is sent before it."""


class Stream:
    """What one producer has said, and what of it was acknowledged, over all lives of the collector."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.sizes: list[int] = []
        self.acked = 0
        self.doubled = 0
        self.swapped = 0
        """Messages sent twice on purpose, and pairs sent in the wrong order."""
        self._rng = random.Random(seed)

    @property
    def rows(self) -> int:
        """Rows said so far."""
        return sum(self.sizes)

    def pump(self, endpoint: str, until: threading.Event, total: int = 10**9) -> None:
        """Produce, resend, double and swap messages until the event is set or `total` of them are acknowledged."""
        with Producer(endpoint, self.name) as producer:
            sent, heard = self._hello(producer), time.monotonic()
            while not until.is_set() and self.acked < total:
                window = list(range(sent + 1, min(self.acked + 32, total) + 1))
                if window and self._rng.random() < 0.1:
                    window.append(self._rng.randint(1, window[-1]))
                    self.doubled += 1
                if len(window) > 1 and self._rng.random() < 0.1:
                    window[0], window[-1] = window[-1], window[0]
                    self.swapped += 1
                for seq in window:
                    self._send(producer, seq)
                    sent = max(sent, seq)
                if not producer.socket.poll(20):
                    if time.monotonic() - heard > 1.0:
                        sent, heard = self._hello(producer), time.monotonic()
                    continue
                heard = time.monotonic()
                message = wire.decode_from_collector(producer.socket.recv())
                match message:
                    case wire.Ack():
                        self.acked = max(self.acked, message.seq)
                    case wire.Welcome():
                        assert message.acked >= self.acked, "what was acknowledged is not there any more"
                        self.acked = message.acked
                        sent = self.acked if sent == _GREETING else sent
                    case wire.Refuse():
                        assert message.reason in ("gap", "unknown-stream", "unavailable"), message
                        # Once for all that were refused: every welcome has the whole window sent again.
                        sent = sent if sent == _GREETING else self._hello(producer)

    def _hello(self, producer: Producer) -> int:
        producer.send(wire.Hello(self.name))
        return _GREETING

    def _send(self, producer: Producer, seq: int) -> None:
        while len(self.sizes) < seq:
            self.sizes.append(self._rng.randint(1, 400))
        rows = self.sizes[seq - 1]
        producer.append(seq, "blocks", rows, blocks(rows, sum(self.sizes[: seq - 1]), f"chaos/{self.name}"))


class Chaos:
    """Rounds of life and death of one log under `streams` producers."""

    def __init__(self, state: Path, streams: int, seed: int) -> None:
        self.state = state
        self.accidents: dict[str, int] = dict.fromkeys(ACCIDENTS, 0)
        self.streams = [Stream(f"s{number}", seed + number) for number in range(streams)]
        self._rng = random.Random(seed)

    def round(self) -> None:
        """One life of the collector under load, ended at a random instant by the next accident."""
        accident = ACCIDENTS[sum(self.accidents.values()) % len(ACCIDENTS)]
        self.accidents[accident] += 1
        with Daemon(self.state, "--rate", "1e9") as collector, Network(collector.endpoint) as network:
            gone = threading.Event()

            def die() -> None:
                wait_until(lambda: any(stream.rows for stream in self.streams), "somebody has said something")
                if accident.startswith("partition"):
                    network.cut()
                    gone.wait(self._rng.uniform(0.1, 1.5))
                    network.mend(reset=self._rng.random() < 0.5)
                    gone.wait(0.3)
                if accident.startswith("full disk"):
                    resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, (2**18, 2**18))
                    gone.wait(0.3)
                collector.process.kill()
                collector.process.wait()
                gone.set()

            threading.Timer(self._rng.uniform(0.0, 0.6), die).start()
            self._pump(network.endpoint, gone, lambda stream: 10**9)
        self._spoil(accident)

    def settle(self) -> None:
        """Let everybody deliver all that was said."""
        with Daemon(self.state, "--rate", "1e9") as collector:
            self._pump(collector.endpoint, threading.Event(), lambda stream: len(stream.sizes))
            collector.end(signal.SIGTERM)

    def verdict(self) -> tuple[int, int]:
        """Rows that are lost, rows that are doubled."""
        query = "SELECT count(*), count(DISTINCT first_index) FROM blocks WHERE job = ?"
        lost = doubled = 0
        # What the database did not have when its collector ended is in the journal, and comes in now.
        with Store(self.state / "log.duckdb") as store, store.cursor() as log:
            for stream in self.streams:
                ((rows, distinct),) = log.execute(query, [f"chaos/{stream.name}"]).fetchall()
                lost += stream.rows - distinct
                doubled += rows - distinct
        return lost, doubled

    def _pump(self, endpoint: str, until: threading.Event, total: Callable[[Stream], int]) -> None:
        failures: list[BaseException] = []

        def work(stream: Stream) -> None:
            try:
                stream.pump(endpoint, until, total(stream))
            except BaseException as error:
                failures.append(error)
                until.set()

        threads = [threading.Thread(target=work, args=(stream,)) for stream in self.streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _spoil(self, accident: str) -> None:
        """Do to the files what may happen to them: to the write-ahead log anything, to the journal what was not synced.

        Bytes behind the journal's last whole group were never acknowledged: a power cut may leave anything there.
        """
        wal = self.state / "log.duckdb.wal"
        size = wal.stat().st_size if wal.exists() else 0
        if accident.endswith("lose the write-ahead log"):
            wal.unlink(missing_ok=True)
        elif accident.endswith("cut the write-ahead log") and size:
            os.truncate(wal, self._rng.randrange(size))
        elif accident.endswith("spoil its end") and size:
            with wal.open("r+b") as file:
                file.seek(self._rng.randrange(size))
                file.write(self._rng.randbytes(64))
        elif accident.endswith("behind what is durable"):
            for path in (self.state / "log.duckdb.journal").iterdir():
                end = _end_of_groups(path)
                os.truncate(path, end)
                with path.open("ab") as file:
                    file.write(self._rng.randbytes(self._rng.randrange(200)))


def _end_of_groups(path: Path) -> int:
    """Where the last group ends, as its headers say (see barograph_collector.storage.journal)."""
    header = struct.Struct("<4sIIIQ")
    data, end = path.read_bytes(), 0
    while data[end : end + 4] == b"BJ01":
        end += header.size + header.unpack_from(data, end)[2]
    return end
