"""The writer thread: commits durable messages to the database, in batches that suit DuckDB."""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import duckdb

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.ingest.appender import DurableGroup
from barograph_collector.ingest.counters import Counters
from barograph_collector.storage.connection import StoreDamaged, StoreError, reason_of
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.layout import JOURNAL
from barograph_collector.storage.rows import Entry
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


@dataclass
class Task:
    """What the writer thread does between two batches, once rows that are durable are in the database.

    function: None for nothing. commits: False where it is enough that the rows are in the tail.
    """

    done: threading.Event
    function: Callable[[], object] | None = None
    commits: bool = True
    error: Exception | None = None

    def run(self) -> None:
        """Run it; what it raises is kept."""
        try:
            if self.function is not None:
                self.function()
        except (duckdb.Error, OSError) as error:
            self.error = error
        self.done.set()


@dataclass
class DatabaseWriter:
    """Commits groups in the order of the journal, up to a None in the queue."""

    store: Store
    groups: queue.SimpleQueue[DurableGroup | Task | None]
    counters: Counters
    retention: Retention
    system: System = SYSTEM

    def __post_init__(self) -> None:
        self._retained_on = -1
        self._threads = self.system.threads
        self._monotonic = self.system.clock.monotonic
        self._ending = self._threads.event()
        self._tasks: list[Task] = []
        self._last = False
        self._journal_bytes = 0
        self._written_at = self._told_at = float("-inf")
        self._number = self.store.journal.last

    def set_retention(self, retention: Retention) -> None:
        """Change the retention from the next batch on; from any thread."""
        self.retention = retention
        self._retained_on = -1

    def run(self, stored: Callable[[list[Entry]], None], news: Callable[[], None]) -> None:
        """Work until the end of the queue.

        stored: called with each batch after its commit. news: called after each extension of the tail.
        """
        try:
            self._work(stored, news)
        finally:
            self._last = True  # nobody waits for a writer that has failed

    def _work(self, stored: Callable[[list[Entry]], None], news: Callable[[], None]) -> None:
        while not self._last:
            if batch := self._gather(news):
                self._write(batch, stored)
            elif self.store.unusable.is_set():
                self._last = self._last or not self._reopen(self._number)
            self._run_tasks()
            if self.store.today != self._retained_on or self._journal_bytes > CHECKPOINT_BYTES:
                self._checkpoint()
                self._apply_retention()
            self.counters.retention_held = int(self.store.calendar.held)

    def end(self) -> None:
        """Give up reopening a database that cannot be opened."""
        self._ending.set()

    def settle(self, commits: bool = True) -> bool:
        """Wait until rows that are durable now are in the database, from another thread; False after SETTLE_SECONDS.

        commits: False where the tail will do, which costs no transaction.
        """
        return self._wait(Task(self._threads.event(), commits=commits), SETTLE_SECONDS)

    def call(self, function: Callable[[], object]) -> None:
        """Run a function in the writer thread, between two batches, from another thread; returns once it has run.

        Raises what it raises of duckdb.Error and OSError, and InterruptedError where the writer ends before it.
        """
        task = Task(self._threads.event(), function)
        if not self._wait(task, math.inf):
            raise InterruptedError("the collector is stopping")
        if task.error is not None:
            raise task.error

    def _wait(self, task: Task, seconds: float) -> bool:
        """Queue a task and wait until it was run; False where that takes longer, or the writer has ended."""
        self.groups.put(task)
        deadline = self._monotonic() + seconds
        while not task.done.wait(0.05):
            if (self._last and not task.done.is_set()) or self._monotonic() > deadline:
                return False
        return True

    def _run_tasks(self) -> None:
        for task in self._tasks:
            task.run()
        if any(task.function is not None for task in self._tasks):
            self.counters.table_rows = self.store.database.row_counts()
        self._tasks.clear()

    def _gather(self, news: Callable[[], None]) -> list[DurableGroup]:
        batch: list[DurableGroup] = []
        rows = size = told = 0
        is_news = False
        deadline = tell_at = 0.0
        timeout: float | None = None
        while rows < BATCH_ROWS or (rows < BACKLOG_ROWS and not self.groups.empty()):
            fits = rows <= TAIL_ROWS and size <= TAIL_BYTES
            try:
                group = self.groups.get(timeout=timeout)
            except queue.Empty:
                if is_news and fits:
                    told, is_news = self._extend(batch, told), False
                    self._told_at = self._monotonic()
                    news()
                if self._monotonic() >= deadline:
                    break
                timeout = max(deadline - self._monotonic(), 0.0)
                continue
            if group is None:
                self._last = True
                break
            if isinstance(group, Task):
                if fits and not group.commits:
                    told = self._extend(batch, told)
                    group.run()
                    timeout = max(min(deadline, tell_at) - self._monotonic(), 0.0) if batch else None
                    continue
                self._tasks.append(group)
                break
            soon = self._monotonic() + GATHER_SECONDS
            if not batch:
                deadline = max(self._written_at + SMALL_BATCH_SECONDS, soon)
                self.counters.waiting_since = group.at
            if not is_news:
                tell_at = max(self._told_at + NEWS_SECONDS, soon)
            if any(entry.table in URGENT for entry in group.entries):
                tell_at = min(tell_at, soon)
            batch.append(group)
            is_news = True
            rows += sum(entry.rows for entry in group.entries)
            size += sum(len(entry.frame) for entry in group.entries)
            if rows > TAIL_ROWS or size > TAIL_BYTES:
                deadline = min(deadline, max(self._written_at + BATCH_SECONDS, soon))
            timeout = max(min(deadline, tell_at) - self._monotonic(), 0.0)
        return batch

    def _extend(self, batch: list[DurableGroup], told: int) -> int:
        """Extend the tail by the groups of a batch that it lacks; returns how many it has."""
        if told < len(batch):
            self.store.tail.add([entry for group in batch[told:] for entry in group.entries])
        return len(batch)

    def _write(self, batch: list[DurableGroup], stored: Callable[[list[Entry]], None]) -> None:
        entries = [entry for group in batch for entry in group.entries]
        number = batch[-1].number
        self._written_at = self._told_at = began = self._monotonic()
        try:
            self.store.commit(entries, {**{entry.stream: entry.seq for entry in entries}, JOURNAL: number})
        except duckdb.Error as error:
            _log.error("commit failed: %s; opening the database again", reason_of(error))
            if not self._reopen(number):
                # A later batch would raise the mark beyond the messages of this one, and they would not be replayed.
                self._last = True
                return
        self._number = number
        self._journal_bytes += sum(len(entry.frame) for entry in entries)
        with self.counters.still:
            self.counters.waiting_since = 0.0
            self.counters.commit_seconds.observe(self._monotonic() - began)
            self.counters.last_offset = self.store.head
            self.counters.count(entries)
        stored(entries)

    def _reopen(self, number: int) -> bool:
        """Open the database again and replay the journal up to message `number`. Retries until `end` is called."""
        last_error = ""
        while True:
            try:
                self.store.reopen(number)
            except StoreDamaged:
                raise  # the next start makes it again, or says what does
            except (duckdb.Error, StoreError, OSError) as error:
                if str(error) != last_error:
                    _log.error("cannot open the database again: %s; retrying", error)
                last_error = str(error)
                self.counters.reopens["failed"] += 1
                if self._ending.wait(RETRY_SECONDS):
                    return False
            else:
                _log.info("the database is open again")
                self.counters.reopens["done"] += 1
                return True

    def _apply_retention(self) -> None:
        self._retained_on = self.store.today
        try:
            dropped = self.store.apply_retention(self.retention)
        except (duckdb.Error, OSError) as error:
            _log.warning("cannot drop days: %s; retrying later", reason_of(error))
            return
        self.counters.partitions_dropped += dropped
        self.counters.table_rows = self.store.database.row_counts()
        if dropped:
            _log.info("dropped the raw rows of %d days", dropped)

    def _checkpoint(self) -> None:
        began = self._monotonic()
        try:
            self.store.checkpoint()
        except (duckdb.Error, OSError) as error:
            # For example during a transaction of a query. Replaying segments that are kept has no effect.
            _log.warning("checkpoint postponed: %s", error)
            self._journal_bytes = CHECKPOINT_BYTES // 2
            return
        self._journal_bytes = 0
        seconds = self._monotonic() - began
        self.counters.checkpoint_seconds.observe(seconds)
        self.counters.longest_checkpoint_seconds = max(seconds, self.counters.longest_checkpoint_seconds)
