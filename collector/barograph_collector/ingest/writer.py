"""The writer thread: commits durable messages to the database, in batches that suit DuckDB."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

import duckdb

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.ingest.appender import DurableGroup
from barograph_collector.ingest.counters import Counters
from barograph_collector.storage.connection import StoreError, first_line
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.layout import JOURNAL
from barograph_collector.storage.messages import Item
from barograph_collector.storage.store import Store
from barograph_collector.storage.tail import TAIL_BYTES, TAIL_ROWS

BATCH_ROWS: Final = 122_880
"""A row group of DuckDB: batches of this size are written to the file directly, compressed, bypassing the WAL."""
BACKLOG_ROWS: Final = 4 * BATCH_ROWS
"""A backlog is committed in batches of up to this size: each commit costs syncs."""
BATCH_SECONDS: Final = 0.2
"""Time between two batches of rows that keep coming."""
SMALL_BATCH_SECONDS: Final = 10.0
"""The same while they fit into the tail: a transaction costs milliseconds however few rows it has."""
NEWS_SECONDS: Final = 0.5
"""Time between two extensions of the tail, after each of which followers read."""
GATHER_SECONDS: Final = 0.02
"""How long the first rows after a pause wait for others."""
URGENT: Final = {"runs"}
"""Tables whose rows extend the tail at once: at its end somebody waits for the verdict on a run."""
CHECKPOINT_BYTES: Final = 256 * 2**20
"""Approximate size of the journal at which a checkpoint is made, after which the journal is truncated."""
RETRY_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class Task:
    """A function that the writer thread runs between two batches."""

    def __init__(self, function: Callable[[], None], done: threading.Event) -> None:
        self.function = function
        self.done = done
        self.error: Exception | None = None

    def run(self) -> None:
        """Run it; what it raises is kept."""
        try:
            self.function()
        except (duckdb.Error, OSError) as error:
            self.error = error


class DatabaseWriter:
    """Commits groups in the order of the journal, up to a None in the queue."""

    def __init__(
        self,
        store: Store,
        groups: queue.SimpleQueue[DurableGroup | threading.Event | Task | None],
        stored: Callable[[list[Item]], None],
        counters: Counters,
        retention: Retention,
        system: System = SYSTEM,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        """`stored` is called with each batch after its commit, `news` after each extension of the tail."""
        self._store = store
        self._groups = groups
        self._stored = stored
        self._news = news
        self._counters = counters
        self._retention = retention
        self._retained_on = -1
        self._threads = system.threads
        self._monotonic = system.clock.monotonic
        self._ending = self._threads.event()
        self._waiting: list[threading.Event] = []
        self._tasks: list[Task] = []
        self._last = False
        self._journal_bytes = 0
        self._written_at = self._told_at = float("-inf")
        self._number = store.journal.last

    def set_retention(self, retention: Retention) -> None:
        """Change the retention from the next batch on; from any thread."""
        self._retention = retention
        self._retained_on = -1

    def run(self) -> None:
        """Work until the end of the queue."""
        while not self._last:
            if batch := self._gather():
                self._write(batch)
            elif self._store.unusable.is_set():
                self._last = self._last or not self._reopen(self._number)
            for event in self._waiting:
                event.set()
            self._waiting.clear()
            self._run_tasks()
            if self._journal_bytes > CHECKPOINT_BYTES or self._store.today != self._retained_on:
                self._checkpoint()
                self._apply_retention()

    def end(self) -> None:
        """Give up reopening a database that cannot be opened."""
        self._ending.set()

    def settle(self) -> bool:
        """Wait until rows that are durable now are in the database, from another thread; False after SETTLE_SECONDS."""
        settled = self._threads.event()
        self._groups.put(settled)
        deadline = self._monotonic() + SETTLE_SECONDS
        while not settled.wait(0.05):
            if self._last or self._monotonic() > deadline:
                return False
        return True

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the writer thread, between two batches, from another thread; returns once it has run.

        Raises what it raises of duckdb.Error and OSError, and InterruptedError where the writer ends before it.
        """
        task = Task(function, self._threads.event())
        self._groups.put(task)
        while not task.done.wait(0.05):
            if self._last and not task.done.is_set():
                raise InterruptedError("the collector is stopping")
        if task.error is not None:
            raise task.error

    def _run_tasks(self) -> None:
        for task in self._tasks:
            task.run()
            task.done.set()
        if self._tasks:
            self._tasks.clear()
            self._counters.table_rows = self._store.database.row_counts()
            self._shrink()

    def _gather(self) -> list[DurableGroup]:
        batch: list[DurableGroup] = []
        rows = size = told = 0
        deadline = tell_at = 0.0
        timeout: float | None = None
        while rows < BATCH_ROWS or (rows < BACKLOG_ROWS and not self._groups.empty()):
            try:
                group = self._groups.get(timeout=timeout)
            except queue.Empty:
                if told < len(batch) and rows <= TAIL_ROWS and size <= TAIL_BYTES:
                    self._tell(batch[told:])
                    told = len(batch)
                if self._monotonic() >= deadline:
                    break
                timeout = max(deadline - self._monotonic(), 0.0)
                continue
            if group is None:
                self._last = True
                break
            if isinstance(group, Task):
                self._tasks.append(group)
                break
            if not isinstance(group, DurableGroup):
                # A reader waits for the groups so far.
                self._waiting.append(group)
                break
            soon = self._monotonic() + GATHER_SECONDS
            if not batch:
                deadline = max(self._written_at + SMALL_BATCH_SECONDS, soon)
                self._counters.waiting_since = group.at
            if told == len(batch):
                tell_at = max(self._told_at + NEWS_SECONDS, soon)
            if any(item.entry.table in URGENT for item in group.items):
                tell_at = min(tell_at, soon)
            batch.append(group)
            rows += sum(item.entry.rows for item in group.items)
            size += sum(len(item.frame) for item in group.items)
            if rows > TAIL_ROWS or size > TAIL_BYTES:
                deadline = min(deadline, max(self._written_at + BATCH_SECONDS, soon))
            timeout = max(min(deadline, tell_at) - self._monotonic(), 0.0)
        return batch

    def _tell(self, groups: list[DurableGroup]) -> None:
        """Extend the tail."""
        self._store.tail.add([item.entry for group in groups for item in group.items])
        self._told_at = self._monotonic()
        self._news()

    def _write(self, batch: list[DurableGroup]) -> None:
        items = [item for group in batch for item in group.items]
        entries = [item.entry for item in items]
        number = batch[-1].number
        self._written_at = self._told_at = began = self._monotonic()
        try:
            self._store.commit(entries, {**{i.stream: i.seq for i in items}, JOURNAL: number})
        except duckdb.Error as error:
            _log.error("commit failed: %s; opening the database again", first_line(error))
            if not self._reopen(number):
                # A later batch would raise the mark beyond the messages of this one, and they would not be replayed.
                self._last = True
                return
        self._number = number
        self._journal_bytes += sum(len(item.frame) for item in items)
        with self._counters.still:
            self._counters.waiting_since = 0.0
            self._counters.commit_seconds.observe(self._monotonic() - began)
            self._counters.last_offset = self._store.head
            self._counters.count(entries)
        self._stored(items)

    def _reopen(self, number: int) -> bool:
        """Open the database again and replay the journal up to message `number`. Retries until `end` is called."""
        last_error = ""
        while True:
            try:
                self._store.reopen(number)
            except (duckdb.Error, StoreError, OSError) as error:
                if str(error) != last_error:
                    _log.error("cannot open the database again: %s; retrying", error)
                last_error = str(error)
                self._counters.reopens["failed"] += 1
                if self._ending.wait(RETRY_SECONDS):
                    return False
            else:
                _log.info("the database is open again")
                self._counters.reopens["done"] += 1
                return True

    def _apply_retention(self) -> None:
        self._retained_on = self._store.today
        try:
            dropped = self._store.apply_retention(self._retention)
        except (duckdb.Error, OSError) as error:
            _log.warning("cannot roll up or drop days: %s; retrying later", str(error).strip().splitlines()[0])
            return
        self._counters.partitions_dropped += dropped
        self._counters.retention_held = int(self._store.calendar.held)
        self._counters.table_rows = self._store.database.row_counts()
        if dropped:
            _log.info("dropped the raw rows of %d days", dropped)
        # Also where nothing was dropped now: a query may have been in the way.
        self._shrink()

    def _shrink(self) -> None:
        began = self._monotonic()
        try:
            if self._store.shrink(self._number):
                _log.info("wrote the database anew in %.1f s: most of its file was free", self._monotonic() - began)
        except BlockingIOError:
            return  # a backup is made: after the next checkpoint
        except (duckdb.Error, StoreError, OSError) as error:
            _log.warning("cannot write the database anew: %s; its free space is used again", error)
            self._last = self._last or not self._reopen(self._number)

    def _checkpoint(self) -> None:
        began = self._monotonic()
        try:
            self._store.checkpoint()
        except (duckdb.Error, OSError) as error:
            # For example during a transaction of a query. Replaying segments that are kept has no effect.
            _log.warning("checkpoint postponed: %s", error)
            self._journal_bytes = CHECKPOINT_BYTES // 2
            return
        self._journal_bytes = 0
        seconds = self._monotonic() - began
        self._counters.checkpoint_seconds.observe(seconds)
        self._counters.longest_checkpoint_seconds = max(seconds, self._counters.longest_checkpoint_seconds)
