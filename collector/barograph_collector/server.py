"""The collector as an object: five threads around a store.

The receive thread owns the socket and the streams, the appender makes messages durable in the journal, after which they
are acknowledged, the writer brings them into the database, the reader answers daemons and the querier people. So a
checkpoint delays no acknowledgement, a query that takes long does not stop daemons, and nothing waits without bound: a
stream has its credit, all of them together `receiver.QUEUE_BYTES`.

A thread that fails ends the whole: what is durable is what journal and database say after the restart, and clients
resend.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import zmq

from barograph_agent.protocol import wire
from barograph_collector.auth.authenticator import Authenticator, HelloRequest
from barograph_collector.auth.authorization import JOBS_KEPT, Authorization
from barograph_collector.auth.credentials import Verifier
from barograph_collector.auth.keys import Keyring
from barograph_collector.daemon.service import CannotListen
from barograph_collector.ingest.appender import Appender, DurableGroup
from barograph_collector.ingest.counters import Counters
from barograph_collector.ingest.space import DiskSpace
from barograph_collector.ingest.streams import Streams
from barograph_collector.ingest.writer import DatabaseWriter
from barograph_collector.net.penalties import RejectionLimiter
from barograph_collector.net.receiver import Order, Post, RateLimits, Receiver, Stored
from barograph_collector.net.requests import RequestRouter
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.net.wakeup_queue import WakeupQueue
from barograph_collector.query.reader import ReadWorker
from barograph_collector.query.sql import THREADS as QUERY_THREADS
from barograph_collector.query.sql import Querier
from barograph_collector.storage.messages import Item
from barograph_collector.storage.retention import KEEP_ALL, Retention
from barograph_collector.storage.store import Store

STOP_SECONDS: Final = 10.0
ROWS_PER_SECOND: Final = 100_000.0
_log = logging.getLogger(__name__)


class Collector:
    """The log, served on one endpoint from `start` to `stop`; used once. The store stays its caller's to close."""

    def __init__(
        self,
        store: Store,
        listen: str,
        *,
        clock: Callable[[], float] = time.time,
        on_failure: Callable[[], None] = lambda: None,
        keyring: Keyring | None = None,
        munge_socket: str | None = None,
        rows_per_second: float = ROWS_PER_SECOND,
        retention: Retention = KEEP_ALL,
        reserve_bytes: int = 0,
    ) -> None:
        """`clock` gives Unix seconds; `on_failure` is called, from the thread that failed, when service has ended.

        keyring: who is let in; None for everybody who can connect. munge_socket: see `credentials.Verifier`.
        rows_per_second: the limit of each producer. retention: which days of raw rows are kept. reserve_bytes: with
        less than this free on the disk nothing is taken.
        """
        self.counters = Counters(last_offset=store.head, table_rows=store.database.row_counts())
        self.endpoint = listen
        self.failure: Exception | None = None
        self._store = store
        self._clock = clock
        self._on_failure = on_failure
        self._keyring = keyring
        self._munge_socket = munge_socket
        self._rows_per_second = rows_per_second
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._mailbox: WakeupQueue[Post] = WakeupQueue()
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._groups: queue.SimpleQueue[DurableGroup | threading.Event | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[tuple[bytes, wire.Read] | None] = queue.SimpleQueue()
        self._queries: queue.SimpleQueue[tuple[bytes, wire.Sql] | None] = queue.SimpleQueue()
        self._greetings: queue.SimpleQueue[HelloRequest | None] = queue.SimpleQueue()
        self._appender = Appender(store.journal, self._items, self._groups, self._mailbox.put)
        self.space = DiskSpace(store.path.parent, reserve_bytes)
        self._writer = DatabaseWriter(
            store,
            self._groups,
            stored=lambda items: self._mailbox.put(Stored(items)),
            counters=self.counters,
            retention=retention,
        )
        self._querier = Querier(store, self._queries, self._mailbox.put, self._writer.settle)
        self._threads: list[threading.Thread] = []
        self._pulse = threading.Event()
        self._pulse.set()

    def start(self) -> None:
        """Bind and serve; `endpoint` then has the port that was chosen for port 0. Raises CannotListen."""
        try:
            door = RouterSocket(self._context, self.endpoint, self._keyring)
        except CannotListen:
            self._context.term()
            self._mailbox.close()
            raise
        self.endpoint = door.endpoint
        streams = Streams()
        admission = self._admission()
        patience = RejectionLimiter(time.monotonic)
        reception = RequestRouter(
            door,
            streams,
            admission,
            self.counters,
            patience,
            reads=self._reads,
            queries=self._queries,
            greetings=self._greetings,
        )
        receiver = Receiver(
            door,
            self._mailbox,
            streams=streams,
            admission=admission,
            reception=reception,
            patience=patience,
            space=self.space,
            items=self._items,
            counters=self.counters,
            clock=self._clock,
        )
        reader = ReadWorker(self._store, self._reads, self._mailbox.put, self._writer.settle)
        for name, work in (
            ("receiver", self._receive(door, receiver)),
            ("appender", self._appender.run),
            ("writer", self._writer.run),
            ("reader", reader.run),
            *(("querier", self._querier.run) for _ in range(QUERY_THREADS)),
            ("gatekeeper", self._gatekeeper().run),
        ):
            self._threads.append(threading.Thread(target=self._guarded, args=(name, work), name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop intake, commit what was accepted, answer it, close. False where that took longer than `seconds`."""
        if not self._threads:
            return True
        deadline = time.monotonic() + seconds
        receiver, *workers = self._threads
        self._querier.stop()
        self._appender.end()
        self._writer.end()
        if receiver.is_alive():
            self._mailbox.put(Order.STOP_INTAKE)
        else:
            self._items.put(None)
            self._reads.put(None)
            self._queries.put(None)
            self._greetings.put(None)
        for thread in workers:
            thread.join(max(deadline - time.monotonic(), 0.0))
        self._mailbox.put(Order.END)
        receiver.join(max(deadline - time.monotonic(), 0.5))
        if late := [thread.name for thread in self._threads if thread.is_alive()]:
            _log.error("did not stop within %g s: %s", seconds, ", ".join(late))
            return False
        self._context.term()
        self._mailbox.close()
        self._threads.clear()
        return True

    def limit(self, rows_per_second: float, retention: Retention, reserve_bytes: int) -> None:
        """Take other limits, while serving; see `__init__`."""
        self._mailbox.put(RateLimits(rows_per_second))
        self._writer.keep(retention)
        self.space.reserve = reserve_bytes

    def pulse(self) -> bool:
        """Whether the receive thread has gone round since this was asked last, or has not been asked yet."""
        answered = self._pulse.is_set()
        if answered:
            self._pulse.clear()
            self._mailbox.put(self._pulse)
        return answered

    def _admission(self) -> Authorization:
        owners: dict[str, str] = {}
        if self._keyring is not None:
            after = -JOBS_KEPT
            while (page := self._store.read("jobs", after, JOBS_KEPT)).rows:
                owners |= dict(zip(page.columns["job"], page.columns["user"], strict=True))
                after = page.next_offset
        return Authorization(self._keyring, owners=owners, rows_per_second=self._rows_per_second, clock=time.monotonic)

    def _gatekeeper(self) -> Authenticator:
        secret = bytes.fromhex(self._keyring.collector.token_secret) if self._keyring is not None else b""
        verifier = Verifier(secret, self._munge_socket, self._clock)
        return Authenticator(verifier, self._store.marks, self._greetings, self._mailbox.put)

    def _receive(self, door: RouterSocket, receiver: Receiver) -> Callable[[], None]:
        def run() -> None:
            # A ZeroMQ socket belongs to one thread, its end included.
            try:
                receiver.run()
            finally:
                door.close()

        return run

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            _log.exception("the %s failed; only a restart knows what is durable", name)
            self.failure = self.failure or error
            self._on_failure()
