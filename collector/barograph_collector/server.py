"""The collector as an object: eight threads around a store, and a ninth with a lake.

- receiver: owns the socket and the streams, checks messages, holds reads that wait for rows, and sends all answers.
- appender: makes messages durable in the journal, after which they are acknowledged.
- writer: commits them to the database, checkpoints it and applies retention.
- reader: answers reads of pages, follower: rounds of daemons.
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
from barograph_collector.auth.authenticator import Authenticator
from barograph_collector.auth.authorization import Authorization
from barograph_collector.auth.credentials import Verifier
from barograph_collector.auth.keys import Keyring
from barograph_collector.daemon.service import CannotListen
from barograph_collector.ingest.appender import Appender, DurableGroup
from barograph_collector.ingest.counters import Counters
from barograph_collector.ingest.space import DiskSpace
from barograph_collector.ingest.writer import DatabaseWriter, Task
from barograph_collector.lake.sealer import Sealer
from barograph_collector.net.receiver import Receiver
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.net.wakeup_queue import WakeupQueue
from barograph_collector.query.sql import THREADS as QUERY_THREADS
from barograph_collector.storage.days.retention import KEEP_ALL, Retention
from barograph_collector.storage.rows import Entry
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
        threads, monotonic = system.threads, system.clock.monotonic
        self.counters = Counters(
            last_offset=store.head, table_rows=store.database.row_counts(), journal_lost=store.journal.lost
        )
        self.space = DiskSpace((store.path.parent, store.journal.directory), self.reserve_bytes, system)
        self._admission = Authorization(self.keyring, self.rows_per_second, monotonic)
        self._items: queue.SimpleQueue[Entry | None] = threads.queue()
        groups: queue.SimpleQueue[DurableGroup | Task | None] = threads.queue()
        self._appender = Appender(store.journal, self._items, groups, system)
        self._writer = DatabaseWriter(store, groups, self.counters, self.retention, system)
        self._receiver = Receiver(
            self.mailbox,
            store,
            self._writer.settle,
            self._admission,
            self.space,
            self._items,
            self.counters,
            system,
        )
        if self.sealer is not None:
            self.sealer.call, self.sealer.retention = self._writer.call, self.retention
            self.sealer.reserve = self.reserve_bytes
        self._threads: list[threading.Thread] = []
        self._pulse = threads.event()
        self._pulse.set()

    def start(self) -> None:
        """Bind and serve; `endpoint` then has the port that was chosen for port 0. Raises CannotListen."""
        receiver = self._receiver
        try:
            receiver.socket = self.open_socket(self.endpoint, self.keyring)
        except CannotListen:
            self.mailbox.close()
            raise
        self.endpoint = receiver.socket.endpoint
        self.space.is_short()  # logged at the start, and not only once there is a row
        secret = bytes.fromhex(self.keyring.collector.token_secret) if self.keyring is not None else b""
        authenticator = Authenticator(
            Verifier(secret, self.munge_socket, self.system.clock.now),
            self.store.marks,
            lambda jobs: self.store.owners(self._admission.unknown(jobs)),
            receiver.hellos,
            receiver.later(receiver.open_stream),
        )
        for name, work in (
            ("receiver", receiver.run),
            ("appender", lambda: self._appender.run(receiver.later(receiver.durable))),
            (
                "writer",
                lambda: self._writer.run(receiver.later(receiver.stored), receiver.later(receiver.answer_ready)),
            ),
            ("reader", receiver.reads.run),
            ("follower", receiver.rounds.run),
            *(("querier", receiver.queries.run) for _ in range(QUERY_THREADS)),
            ("authenticator", authenticator.run),
            *((("sealer", self.sealer.run),) if self.sealer is not None else ()),
        ):
            self._threads.append(self.system.threads.start(name, functools.partial(self._run, name, work)))

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop receiving, commit and acknowledge accepted rows, close. False if that took longer than `seconds`."""
        if not self._threads:
            return True
        monotonic = self.system.clock.monotonic
        deadline = monotonic() + seconds
        receiver, *workers = self._threads
        self._receiver.querier.stop()
        self._appender.end()
        self._writer.end()
        if self.sealer is not None:
            self.sealer.end()
        if receiver.is_alive():
            self._receiver.later(self._receiver.stop_intake)()
        else:
            self._items.put(None)
            self._receiver.end_answers()
        for thread in workers:
            thread.join(max(deadline - monotonic(), 0.0))
        self._receiver.later(self._receiver.end)()
        receiver.join(max(deadline - monotonic(), 0.5))
        if late := [thread.name for thread in self._threads if thread.is_alive()]:
            _log.error("did not stop within %g s: %s", seconds, ", ".join(late))
            return False
        self.mailbox.close()
        self._threads.clear()
        return True

    def limit(self, rows_per_second: float, retention: Retention, reserve_bytes: int) -> None:
        """Change limits while serving; see the class."""
        self._receiver.later(self._admission.set_rate)(rows_per_second)
        self._writer.set_retention(retention)
        if self.sealer is not None:
            self.sealer.retention, self.sealer.reserve = retention, reserve_bytes
        self.space.reserve = reserve_bytes

    def pulse(self) -> bool:
        """Whether the receive thread has completed a cycle since the last call; True at the first call."""
        answered = self._pulse.is_set()
        if answered:
            self._pulse.clear()
            self._receiver.later(self._pulse.set)()
        return answered

    def _run(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            _log.exception("the %s failed; only a restart knows what is durable", name)
            self.failure = self.failure or error
            self.on_failure()
