"""The writer thread's work: gather what is queued into one batch, commit it, say so."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Final

from barograph_collector.counters import Counters
from barograph_collector.intake import Item
from barograph_collector.store import Store

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * 2**20
BATCH_SECONDS: Final = 0.1


class Writer:
    """Commits items in the order they were queued; a None in the queue ends it after everything before it."""

    def __init__(
        self,
        store: Store,
        items: queue.SimpleQueue[Item | None],
        done: Callable[[list[Item]], None],
        counters: Counters,
    ) -> None:
        self._store = store
        self._items = items
        self._done = done
        self._counters = counters
        self._ending = False

    def run(self) -> None:
        """Work until told to end. Raises what a commit raises: after that only a restart knows what is durable."""
        while not self._ending:
            if batch := self._gather():
                self._commit(batch)

    def _gather(self) -> list[Item]:
        batch: list[Item] = []
        rows = size = 0
        timeout: float | None = None
        deadline = 0.0
        while rows < BATCH_ROWS and size < BATCH_BYTES:
            try:
                item = self._items.get(timeout=timeout)
            except queue.Empty:
                break
            if item is None:
                self._ending = True
                break
            if not batch:
                deadline = time.monotonic() + BATCH_SECONDS
            batch.append(item)
            rows += item.entry.rows
            size += item.size
            timeout = max(deadline - time.monotonic(), 0.0)
        return batch

    def _commit(self, batch: list[Item]) -> None:
        began = time.perf_counter()
        self._counters.last_offset = self._store.commit(
            [item.entry for item in batch], {item.stream: item.seq for item in batch}
        )
        self._counters.commit_seconds += time.perf_counter() - began
        self._counters.commits += 1
        for item in batch:
            self._counters.count(item.entry)
        self._done(batch)
