"""The collector as an object: seven threads around a store, and an eighth with a lake.

- receiver: owns the socket and the streams, checks messages, holds reads that wait for rows, and sends all answers.
- appender: makes messages durable in the journal, after which they are acknowledged.
- writer: commits them to the database, checkpoints it and applies retention.
- reader: answers reads.
- two queriers: answer SQL queries.
- authenticator: verifies credentials and looks up streams for hellos.
- sealer: brings periods that have ended into the lake.

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
from dataclasses import KW_ONLY, dataclass, field
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
from barograph_collector.ingest.space import DiskSpace
from barograph_collector.ingest.streams import Reply, Streams
from barograph_collector.ingest.writer import DatabaseWriter, Task, Waiter
from barograph_collector.lake.sealer import Sealer
from barograph_collector.net.answerer import Answerer
from barograph_collector.net.event_limit import EventLimit
from barograph_collector.net.receiver import QUERIES_WAITING, READS_WAITING, REJECTED_PER_SECOND, Receiver
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.net.waiting_reads import MAX_FINAL_READS, MAX_FINAL_SECONDS, FinalScores, WaitingReads
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


@dataclass(eq=False)
class Collector:
    """The log, served on one endpoint from `start` to `stop`; used once. The caller closes the store.

    on_failure: called from a thread that fails. keyring: the clients that may connect; None for all. munge_socket: see
    `credentials.Verifier`. rows_per_second: the rate limit of each producer. retention: which days of raw rows are
    kept. reserve_bytes: with less than this free on the disk no rows are accepted. sealer: of the lake, None without
    one. mailbox, open_socket: simulated ones.
    """

    store: Store
    endpoint: str
    _: KW_ONLY
    system: System = SYSTEM
    on_failure: Callable[[], None] = lambda: None
    keyring: Keyring | None = None
    munge_socket: str | None = None
    rows_per_second: float = ROWS_PER_SECOND
    retention: Retention = KEEP_ALL
    reserve_bytes: int = 0
    sealer: Sealer | None = None
    mailbox: WakeupQueue[Callable[[], object]] = field(default_factory=WakeupQueue)
    open_socket: Callable[..., RouterSocket] = RouterSocket
    failure: Exception | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        store, system = self.store, self.system
        self.counters = Counters(
            last_offset=store.head, table_rows=store.database.row_counts(), journal_lost=store.journal.lost
        )
        self._items: queue.SimpleQueue[Item | None] = system.threads.queue()
        groups: queue.SimpleQueue[DurableGroup | Waiter | Task | None] = system.threads.queue()
        self._appender = Appender(
            store.journal, self._items, groups, lambda items: self._call(self._receiver.durable, items), system
        )
        self.space = DiskSpace((store.path.parent, store.journal.directory), self.reserve_bytes, system)
        self._writer = DatabaseWriter(
            store,
            groups,
            stored=lambda items: self._call(self._receiver.stored, items),
            counters=self.counters,
            retention=self.retention,
            system=system,
            news=lambda: self._call(self._receiver.answer_ready),
        )
        if self.sealer is not None:
            self.sealer.call, self.sealer.retention = self._writer.call, self.retention
            self.sealer.reserve = self.reserve_bytes
        self._querier = Querier(store, self._writer.settle)
        self._threads: list[threading.Thread] = []
        self._pulse = system.threads.event()
        self._pulse.set()

    def start(self) -> None:
        """Bind and serve; `endpoint` then has the port that was chosen for port 0. Raises CannotListen."""
        try:
            socket = self.open_socket(self.endpoint, self.keyring)
        except CannotListen:
            self.mailbox.close()
            raise
        self.endpoint = socket.endpoint
        self.space.is_short()  # logged at the start, and not only once there is a row
        streams = Streams()
        threads, monotonic = self.system.threads, self.system.clock.monotonic
        admission = self._admission = self._make_admission()
        read = functools.partial(answer_read, self.store, self._writer.settle)

        def send(reply: Reply) -> None:
            self._call(self._receiver.send_answer, reply)

        # Those of daemons do not queue behind those of agents, of which many come at once when many jobs end.
        reads, rounds = (Answerer(read, send, READS_WAITING, failed, threads) for _ in range(2))
        queries = Answerer(self._querier.answer, send, QUERIES_WAITING, refused, threads)
        hellos: queue.SimpleQueue[HelloRequest | None] = threads.queue()
        finals = FinalScores()
        secret = bytes.fromhex(self.keyring.collector.token_secret) if self.keyring is not None else b""
        authenticator = Authenticator(
            Verifier(secret, self.munge_socket, self.system.clock.now),
            self.store.marks,
            lambda jobs: self.store.owners(admission.unknown(jobs)),
            hellos,
            lambda *result: self._call(self._receiver.open_stream, *result),
        )
        receiver = self._receiver = Receiver(
            socket,
            self.mailbox,
            streams=streams,
            admission=admission,
            limiter=TokenBuckets(REJECTED_PER_SECOND, monotonic),
            space=self.space,
            items=self._items,
            events=EventLimit(admission, monotonic),
            counters=self.counters,
            reads=reads,
            rounds=rounds,
            queries=queries,
            waits=(
                WaitingReads(lambda read: read.tables is None or self.store.has_rows(read.tables), monotonic),
                WaitingReads(finals.is_ready, monotonic, MAX_FINAL_READS, MAX_FINAL_SECONDS),
            ),
            finals=finals,
            hellos=hellos,
            clock=self.system.clock.now,
        )
        for name, work in (
            ("receiver", receiver.run),
            ("appender", self._appender.run),
            ("writer", self._writer.run),
            ("reader", reads.run),
            ("follower", rounds.run),
            *(("querier", queries.run) for _ in range(QUERY_THREADS)),
            ("authenticator", authenticator.run),
            *((("sealer", self.sealer.run),) if self.sealer is not None else ()),
        ):
            self._threads.append(threads.start(name, functools.partial(self._run, name, work)))

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop receiving, commit and acknowledge accepted rows, close. False if that took longer than `seconds`."""
        if not self._threads:
            return True
        monotonic = self.system.clock.monotonic
        deadline = monotonic() + seconds
        receiver, *workers = self._threads
        self._querier.stop()
        self._appender.end()
        self._writer.end()
        if self.sealer is not None:
            self.sealer.end()
        if receiver.is_alive():
            self._call(self._receiver.stop_intake)
        else:
            self._items.put(None)
            self._receiver.end_answers()
        for thread in workers:
            thread.join(max(deadline - monotonic(), 0.0))
        self._call(self._receiver.end)
        receiver.join(max(deadline - monotonic(), 0.5))
        if late := [thread.name for thread in self._threads if thread.is_alive()]:
            _log.error("did not stop within %g s: %s", seconds, ", ".join(late))
            return False
        self.mailbox.close()
        self._threads.clear()
        return True

    def limit(self, rows_per_second: float, retention: Retention, reserve_bytes: int) -> None:
        """Change limits while serving; see `__init__`."""
        self._call(self._admission.set_rate, rows_per_second)
        self._writer.set_retention(retention)
        if self.sealer is not None:
            self.sealer.retention, self.sealer.reserve = retention, reserve_bytes
        self.space.reserve = reserve_bytes

    def pulse(self) -> bool:
        """Whether the receive thread has completed a cycle since the last call; True at the first call."""
        answered = self._pulse.is_set()
        if answered:
            self._pulse.clear()
            self._call(self._pulse.set)
        return answered

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the receive thread call a function."""
        self.mailbox.put(functools.partial(function, *arguments))

    def _make_admission(self) -> Authorization:
        owners: dict[str, str] = {}
        if self.keyring is not None:
            after = -JOBS_KEPT
            while (page := self.store.read("jobs", after, JOBS_KEPT)).rows:
                owners |= dict(zip(page.columns["job"], page.columns["user"], strict=True))
                after = page.next_offset
        return Authorization(
            self.keyring, owners=owners, rows_per_second=self.rows_per_second, clock=self.system.clock.monotonic
        )

    def _run(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            _log.exception("the %s failed; only a restart knows what is durable", name)
            self.failure = self.failure or error
            self.on_failure()
