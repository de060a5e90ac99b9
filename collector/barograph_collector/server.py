"""The collector as an object: four threads around a store.

The receive thread owns the socket and the streams, the writer commits, the reader answers daemons and the querier
people. A checkpoint that keeps the writer for a while does not stop reception, a query that takes long does not stop
daemons, and nothing waits without bound: a stream has its credit, all of them together `receiver.QUEUE_BYTES`.

A thread that fails ends the whole: what is durable is what the database says after the restart, and clients resend.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import zmq

from barograph_agent import wire
from barograph_collector.counters import Counters
from barograph_collector.intake import Item
from barograph_collector.mailbox import Mailbox
from barograph_collector.query import Querier
from barograph_collector.reader import Reader
from barograph_collector.receiver import Order, Post, Receiver
from barograph_collector.service import CannotListen
from barograph_collector.store import Store
from barograph_collector.streams import CREDIT, Streams
from barograph_collector.writer import Writer

STOP_SECONDS: Final = 3.0
_LINGER_MS: Final = 250
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
    ) -> None:
        """`clock` gives Unix seconds; `on_failure` is called, from the thread that failed, when service has ended."""
        self.counters = Counters(last_offset=store.head)
        self.endpoint = listen
        self.failure: Exception | None = None
        self._store = store
        self._clock = clock
        self._on_failure = on_failure
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._mailbox: Mailbox[Post] = Mailbox()
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[tuple[bytes, wire.Read] | None] = queue.SimpleQueue()
        self._queries: queue.SimpleQueue[tuple[bytes, wire.Sql] | None] = queue.SimpleQueue()
        self._querier = Querier(store, self._queries, self._mailbox.put)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Bind and serve; `endpoint` then has the port that was chosen for port 0. Raises CannotListen."""
        router = self._context.socket(zmq.ROUTER)
        try:
            self._bind(router)
        except CannotListen:
            router.close(0)
            self._context.term()
            self._mailbox.close()
            raise
        streams = Streams.recovered(self._store.high_water())
        receiver = Receiver(
            router,
            self._mailbox,
            streams=streams,
            items=self._items,
            reads=self._reads,
            queries=self._queries,
            counters=self.counters,
            clock=self._clock,
        )
        writer = Writer(self._store, self._items, self._mailbox.put, self.counters)
        reader = Reader(self._store, self._reads, self._mailbox.put)
        for name, work in (
            ("receiver", self._receive(router, receiver)),
            ("writer", writer.run),
            ("reader", reader.run),
            ("querier", self._querier.run),
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
        if receiver.is_alive():
            self._mailbox.put(Order.STOP_INTAKE)
        else:
            self._items.put(None)
            self._reads.put(None)
            self._queries.put(None)
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

    def _bind(self, router: zmq.Socket[bytes]) -> None:
        router.setsockopt(zmq.LINGER, _LINGER_MS)
        router.setsockopt(zmq.IPV6, "[" in self.endpoint)
        router.setsockopt(zmq.MAXMSGSIZE, wire.MAX_BYTES)
        router.setsockopt(zmq.RCVHWM, CREDIT)
        router.setsockopt(zmq.SNDHWM, 2 * CREDIT)
        try:
            router.bind(self.endpoint)
        except zmq.ZMQError as error:
            raise CannotListen(self.endpoint, str(error)) from None
        self.endpoint = router.getsockopt_string(zmq.LAST_ENDPOINT)

    def _receive(self, router: zmq.Socket[bytes], receiver: Receiver) -> Callable[[], None]:
        def run() -> None:
            # A ZeroMQ socket belongs to one thread, its end included.
            with router:
                receiver.run()

        return run

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            _log.exception("the %s failed; only a restart knows what is durable", name)
            self.failure = self.failure or error
            self._on_failure()
