"""The collector as an object: seven threads around a store, and an eighth with a lake.

- receiver: owns the socket and the streams, checks messages, holds reads that wait for rows, and sends all answers.
- appender: makes messages durable in the journal, after which they are acknowledged.
- writer: commits them to the database, checkpoints it and applies retention.
- reader: answers reads.
- two queriers: answer SQL queries.
- authenticator: verifies credentials and looks up streams for hellos.
- publisher: brings rows that are in the database into the lake.

So a checkpoint delays no acknowledgement, and a long query no daemon. Every queue is bounded: a stream by its
credit, all streams together by `receiver.QUEUE_BYTES`, requests by their number.

A thread that fails ends the collector: after a restart journal and database say what is durable, and clients resend.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.auth.authenticator import Authenticator, HelloRequest
from barograph_collector.auth.authorization import JOBS_KEPT, Authorization
from barograph_collector.auth.credentials import Verifier
from barograph_collector.auth.keys import Keyring
from barograph_collector.auth.rate_limit import TokenBuckets
from barograph_collector.daemon.service import CannotListen
from barograph_collector.ingest.appender import Appender, DurableGroup
from barograph_collector.ingest.counters import Counters
from barograph_collector.ingest.intake import DrainProgress, Intake
from barograph_collector.ingest.space import DiskSpace
from barograph_collector.ingest.streams import Streams
from barograph_collector.ingest.writer import DatabaseWriter, Task
from barograph_collector.lake.publisher import Publisher
from barograph_collector.net.answerer import Answerer
from barograph_collector.net.final_scores import MAX_READS, MAX_SECONDS, FinalScores
from barograph_collector.net.receiver import Receiver
from barograph_collector.net.requests import QUERIES_WAITING, READS_WAITING, REJECTED_PER_SECOND, RequestRouter
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.net.waiting_reads import WaitingReads
from barograph_collector.net.wakeup_queue import WakeupQueue
from barograph_collector.query.reader import answer_read, failed
from barograph_collector.query.sql import THREADS as QUERY_THREADS
from barograph_collector.query.sql import Querier, refused
from barograph_collector.storage.days.retention import KEEP_ALL, Retention
from barograph_collector.storage.messages import Item
from barograph_collector.storage.store import Store

STOP_SECONDS: Final = 10.0
ROWS_PER_SECOND: Final = 100_000.0
_log = logging.getLogger(__name__)


class Collector:
    """The log, served on one endpoint from `start` to `stop`; used once. The caller closes the store."""

    def __init__(
        self,
        store: Store,
        listen: str,
        *,
        system: System = SYSTEM,
        on_failure: Callable[[], None] = lambda: None,
        keyring: Keyring | None = None,
        munge_socket: str | None = None,
        rows_per_second: float = ROWS_PER_SECOND,
        retention: Retention = KEEP_ALL,
        reserve_bytes: int = 0,
        publisher: Publisher | None = None,
        mailbox: WakeupQueue[Callable[[], object]] | None = None,
        open_socket: Callable[..., RouterSocket] = RouterSocket,
    ) -> None:
        """`on_failure` is called from a thread that fails.

        keyring: the clients that may connect; None for all. munge_socket: see `credentials.Verifier`.
        rows_per_second: the rate limit of each producer. retention: which days of raw rows are kept. reserve_bytes:
        with less than this free on the disk no rows are accepted. publisher: of the lake, None without one.
        mailbox, open_socket: simulated ones.
        """
        self.counters = Counters(last_offset=store.head, table_rows=store.database.row_counts())
        self.endpoint = listen
        self.failure: Exception | None = None
        self._store = store
        self._system = system
        self._open_socket = open_socket
        self._on_failure = on_failure
        self._keyring = keyring
        self._munge_socket = munge_socket
        self._rows_per_second = rows_per_second
        self._mailbox: WakeupQueue[Callable[[], object]] = mailbox or WakeupQueue()
        self._items: queue.SimpleQueue[Item | None] = system.threads.queue()
        groups: queue.SimpleQueue[DurableGroup | threading.Event | Task | None] = system.threads.queue()
        self._appender = Appender(
            store.journal, self._items, groups, lambda items: self._call(self._receiver.durable, items), system
        )
        self.space = DiskSpace(store.path.parent, reserve_bytes, system)
        self._intake = Intake(self.space)
        self._writer = DatabaseWriter(
            store,
            groups,
            stored=lambda items: self._call(self._receiver.stored, items),
            counters=self.counters,
            retention=retention,
            system=system,
            news=lambda: self._call(self._router.answer_ready),
        )
        self.publisher = publisher
        if publisher is not None:
            publisher.archiver.call = self._writer.call
            publisher.archiver.retention = retention
        self._querier = Querier(store, self._writer.settle)
        self._threads: list[threading.Thread] = []
        self._pulse = system.threads.event()
        self._pulse.set()

    def start(self) -> None:
        """Bind and serve; `endpoint` then has the port that was chosen for port 0. Raises CannotListen."""
        try:
            socket = self._open_socket(self.endpoint, self._keyring)
        except CannotListen:
            self._mailbox.close()
            raise
        self.endpoint = socket.endpoint
        self.space.is_short()  # logged at the start, and not only once there is a row
        streams = Streams()
        threads, monotonic = self._system.threads, self._system.clock.monotonic
        admission = self._admission = self._make_admission()
        limiter = TokenBuckets(REJECTED_PER_SECOND, monotonic)
        read = functools.partial(answer_read, self._store, self._writer.settle)
        # Those of daemons do not queue behind those of agents, of which many come at once when many jobs end.
        reads, rounds = (
            Answerer(read, lambda reply: self._call(router.send_answer, reply), READS_WAITING, failed, threads)
            for _ in range(2)
        )
        queries = Answerer(
            self._querier.answer, lambda reply: self._call(router.send_answer, reply), QUERIES_WAITING, refused, threads
        )
        hellos: queue.SimpleQueue[HelloRequest | None] = threads.queue()
        finals = FinalScores()
        router = self._router = RequestRouter(
            socket,
            streams,
            admission,
            self.counters,
            limiter,
            reads=reads,
            rounds=rounds,
            intake=self._intake,
            waits=(
                WaitingReads(lambda read: read.tables is None or self._store.has_rows(read.tables), monotonic),
                WaitingReads(finals.is_ready, monotonic, MAX_READS, MAX_SECONDS),
            ),
            finals=finals,
            queries=queries,
            hellos=hellos,
        )
        authenticator = Authenticator(
            self._verifier(),
            self._store.marks,
            lambda jobs: self._store.owners(admission.unknown(jobs)),
            hellos,
            functools.partial(self._call, router.open_stream),
        )
        receiver = self._receiver = Receiver(
            socket,
            self._mailbox,
            streams=streams,
            admission=admission,
            router=router,
            limiter=limiter,
            intake=self._intake,
            items=self._items,
            counters=self.counters,
            clock=self._system.clock.now,
        )
        for name, work in (
            ("receiver", self._receive(socket, receiver)),
            ("appender", self._appender.run),
            ("writer", self._writer.run),
            ("reader", reads.run),
            ("follower", rounds.run),
            *(("querier", queries.run) for _ in range(QUERY_THREADS)),
            ("authenticator", authenticator.run),
            *((("publisher", self.publisher.run),) if self.publisher is not None else ()),
        ):
            self._threads.append(threads.start(name, functools.partial(self._run, name, work)))

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop receiving, commit and acknowledge accepted rows, close. False if that took longer than `seconds`."""
        if not self._threads:
            return True
        monotonic = self._system.clock.monotonic
        deadline = monotonic() + seconds
        receiver, *workers = self._threads
        self._querier.stop()
        self._appender.end()
        self._writer.end()
        if self.publisher is not None:
            self.publisher.end()
        if receiver.is_alive():
            self._call(self._receiver.stop_intake)
        else:
            self._items.put(None)
            self._router.end()
        for thread in workers:
            thread.join(max(deadline - monotonic(), 0.0))
        self._call(self._receiver.end)
        receiver.join(max(deadline - monotonic(), 0.5))
        if late := [thread.name for thread in self._threads if thread.is_alive()]:
            _log.error("did not stop within %g s: %s", seconds, ", ".join(late))
            return False
        self._mailbox.close()
        self._threads.clear()
        return True

    def limit(self, rows_per_second: float, retention: Retention, reserve_bytes: int) -> None:
        """Change limits while serving; see `__init__`."""
        self._call(self._admission.set_rate, rows_per_second)
        self._writer.set_retention(retention)
        if self.publisher is not None:
            self.publisher.archiver.retention = retention
        self.space.reserve = reserve_bytes

    def drain(self, on: bool) -> None:
        """Take no rows from now on, or take them again; see `progress`."""
        self._call(self._set_draining, on)

    def _set_draining(self, on: bool) -> None:
        self._intake.draining = on
        self.counters.draining = int(on)
        if self.publisher is not None:
            self.publisher.hurry(on)

    def progress(self) -> DrainProgress:
        """How far a drain is: rows that are not in the database, the last offset in it, and that in the lake."""
        # In this order: what leaves the queue is in the database.
        waiting = self.counters.queue_rows
        draining, head = self._intake.draining, self._store.head
        lake = self.publisher.figures.position if self.publisher is not None else None
        return DrainProgress(draining, waiting, head, lake)

    def pulse(self) -> bool:
        """Whether the receive thread has completed a cycle since the last call; True at the first call."""
        answered = self._pulse.is_set()
        if answered:
            self._pulse.clear()
            self._call(self._pulse.set)
        return answered

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the receive thread call a function."""
        self._mailbox.put(functools.partial(function, *arguments))

    def _make_admission(self) -> Authorization:
        owners: dict[str, str] = {}
        if self._keyring is not None:
            after = -JOBS_KEPT
            while (page := self._store.read("jobs", after, JOBS_KEPT)).rows:
                owners |= dict(zip(page.columns["job"], page.columns["user"], strict=True))
                after = page.next_offset
        return Authorization(
            self._keyring, owners=owners, rows_per_second=self._rows_per_second, clock=self._system.clock.monotonic
        )

    def _verifier(self) -> Verifier:
        secret = bytes.fromhex(self._keyring.collector.token_secret) if self._keyring is not None else b""
        return Verifier(secret, self._munge_socket, self._system.clock.now)

    def _receive(self, socket: RouterSocket, receiver: Receiver) -> Callable[[], None]:
        def run() -> None:
            # A ZeroMQ socket must be closed by the thread that uses it.
            try:
                receiver.run()
            finally:
                socket.close()

        return run

    def _run(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            _log.exception("the %s failed; only a restart knows what is durable", name)
            self.failure = self.failure or error
            self._on_failure()
