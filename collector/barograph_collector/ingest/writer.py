"""The writer thread's work: bring what is durable into the database, in batches that suit it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import duckdb

from barograph_collector.ingest.appender import DurableGroup
from barograph_collector.ingest.counters import Counters
from barograph_collector.storage.database import JOURNAL, StoreError, first_line
from barograph_collector.storage.messages import Item
from barograph_collector.storage.retention import Retention
from barograph_collector.storage.store import Store

BATCH_ROWS: Final = 122_880
"""A row group of DuckDB: so many at once go to the file directly, compressed, and not through its write-ahead log."""
BACKLOG_ROWS: Final = 4 * BATCH_ROWS
"""With so much waiting, fewer commits, each with its syncs, are worth more than sooner ones."""
BATCH_SECONDS: Final = 0.2
CHECKPOINT_BYTES: Final = 256 * 2**20
"""The journal is as long at most, about, before a checkpoint lets go of it."""
RETRY_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class DatabaseWriter:
    """Commits groups in the order of the journal; a None in the queue ends it after everything before it."""

    def __init__(
        self,
        store: Store,
        groups: queue.SimpleQueue[DurableGroup | threading.Event | None],
        stored: Callable[[list[Item]], None],
        counters: Counters,
        retention: Retention,
    ) -> None:
        """`stored` hears of every batch once it is in the database."""
        self._store = store
        self._groups = groups
        self._stored = stored
        self._counters = counters
        self._retention = retention
        self._kept_house_on = -1
        self._ending = threading.Event()
        self._waiting: list[threading.Event] = []
        self._last = False
        self._journal_bytes = 0
        self._number = store.journal.last

    def keep(self, retention: Retention) -> None:
        """Keep days by this from now on; any thread may say so. What is too old goes with the next batch."""
        self._retention = retention
        self._kept_house_on = -1

    def run(self) -> None:
        """Work until told to end."""
        while not self._last:
            if batch := self._gather():
                self._write(batch)
            elif self._store.unusable.is_set():
                self._reopen(self._number)
            for event in self._waiting:
                event.set()
            self._waiting.clear()
            if self._journal_bytes > CHECKPOINT_BYTES or self._store.today != self._kept_house_on:
                self._checkpoint()
                self._keep_house()

    def end(self) -> None:
        """Do not try any more what does not go."""
        self._ending.set()

    def settle(self) -> bool:
        """From another thread: wait until what is durable by now is in the database; False where that takes long."""
        settled = threading.Event()
        self._groups.put(settled)
        deadline = time.monotonic() + SETTLE_SECONDS
        while not settled.wait(0.05):
            if self._last or time.monotonic() > deadline:
                return False
        return True

    def _gather(self) -> list[DurableGroup]:
        batch: list[DurableGroup] = []
        rows = 0
        deadline = 0.0
        timeout: float | None = None
        while rows < BATCH_ROWS or (rows < BACKLOG_ROWS and not self._groups.empty()):
            try:
                group = self._groups.get(timeout=timeout)
            except queue.Empty:
                break
            if group is None:
                self._last = True
                break
            if isinstance(group, threading.Event):
                # Somebody wants to read what has come so far.
                self._waiting.append(group)
                break
            if not batch:
                deadline = time.monotonic() + BATCH_SECONDS
                self._counters.waiting_since = group.at
            batch.append(group)
            rows += sum(item.entry.rows for item in group.items)
            timeout = max(deadline - time.monotonic(), 0.0)
        return batch

    def _write(self, batch: list[DurableGroup]) -> None:
        items = [item for group in batch for item in group.items]
        entries = [item.entry for item in items]
        number = batch[-1].number
        began = time.perf_counter()
        try:
            self._store.commit(entries, {**{i.stream: i.seq for i in items}, JOURNAL: number})
        except duckdb.Error as error:
            _log.error("a commit failed: %s; opening the database again", first_line(error))
            if not self._reopen(number):
                return
        self._number = number
        self._counters.waiting_since = 0.0
        self._counters.commit_seconds.observe(time.perf_counter() - began)
        self._counters.last_offset = self._store.head
        self._journal_bytes += sum(len(item.frame) for item in items)
        self._counters.count(entries)
        self._stored(items)

    def _reopen(self, number: int) -> bool:
        """Open the database again, with everything up to the journal's message `number`, however long that takes."""
        complained = ""
        while True:
            try:
                self._store.reopen(number)
            except (duckdb.Error, StoreError, OSError) as error:
                if str(error) != complained:
                    _log.error("cannot open the database again: %s; going on trying", error)
                complained = str(error)
                self._counters.reopens["failed"] += 1
                if self._ending.wait(RETRY_SECONDS):
                    return False
            else:
                _log.info("the database is open again")
                self._counters.reopens["done"] += 1
                return True

    def _keep_house(self) -> None:
        self._kept_house_on = self._store.today
        try:
            dropped = self._store.keep_house(self._retention)
        except duckdb.Error as error:
            _log.warning("days could not be rolled up or dropped, next time: %s", first_line(error))
            return
        self._counters.partitions_dropped += dropped
        self._counters.table_rows = self._store.database.row_counts()
        if dropped:
            _log.info("dropped the raw rows of %d days", dropped)

    def _checkpoint(self) -> None:
        began = time.perf_counter()
        try:
            self._store.checkpoint()
        except (duckdb.Error, OSError) as error:
            # Not while somebody else is in a transaction, for one. What was not forgotten is replayed in vain at worst.
            _log.warning("a checkpoint has to wait: %s", error)
            self._journal_bytes = CHECKPOINT_BYTES // 2
            return
        self._journal_bytes = 0
        seconds = time.perf_counter() - began
        self._counters.checkpoint_seconds.observe(seconds)
        self._counters.longest_checkpoint_seconds = max(seconds, self._counters.longest_checkpoint_seconds)
