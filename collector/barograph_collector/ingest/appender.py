"""The appender thread's work: make what was accepted durable in the journal, say so, pass it on to the database."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from barograph_collector.storage.journal import Journal
from barograph_collector.storage.messages import Item

GROUP_BYTES: Final = 16 * 2**20
RETRY_SECONDS: Final = 0.25
_log = logging.getLogger(__name__)


class DurableGroup(NamedTuple):
    """Items that became durable together, the journal's number of the last one, and when that was (monotonic)."""

    items: list[Item]
    number: int
    at: float


class Appender:
    """Takes all that waits as one group, so that the longer a sync takes the more it syncs; a None ends it."""

    def __init__(
        self,
        journal: Journal,
        items: queue.SimpleQueue[Item | None],
        groups: queue.SimpleQueue[DurableGroup | threading.Event | None],
        durable: Callable[[list[Item]], None],
    ) -> None:
        """`durable` hears of every group once it cannot be lost any more."""
        self._journal = journal
        self._items = items
        self._groups = groups
        self._durable = durable
        self._ending = threading.Event()

    def run(self) -> None:
        """Work until told to end."""
        while items := self._gather():
            number = self._append(items)
            if number is None:
                break
            # First to the database: a read that follows the acknowledgement must find it waiting there.
            self._groups.put(DurableGroup(items, number, time.monotonic()))
            self._durable(items)
        self._groups.put(None)

    def end(self) -> None:
        """Do not wait for room on the disk any more."""
        self._ending.set()

    def _gather(self) -> list[Item]:
        """Everything there is, at least one; nothing at the end."""
        items: list[Item] = []
        size = 0
        while size < GROUP_BYTES and (not items or not self._items.empty()):
            item = self._items.get()
            if item is None:
                # Once more for the next call, which then ends.
                self._items.put(None)
                break
            items.append(item)
            size += len(item.frame)
        return items

    def _append(self, items: list[Item]) -> int | None:
        """The journal's number of the last one, as soon as there is room; None where the end came before."""
        frames = [item.frame for item in items]
        complained = False
        while True:
            try:
                number = self._journal.append(frames)
            except OSError as error:
                if not complained:
                    _log.error(
                        "cannot write the journal: %s; nothing is acknowledged until that goes again", error.strerror
                    )
                complained = True
                if self._ending.wait(RETRY_SECONDS):
                    return None
            else:
                if complained:
                    _log.info("the journal is written again")
                return number
