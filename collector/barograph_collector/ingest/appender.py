"""The appender thread: makes accepted messages durable in the journal and passes them on to the writer."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.rows import Entry

GROUP_BYTES: Final = 16 * 2**20
RETRY_SECONDS: Final = 0.25
T = TypeVar("T")
_log = logging.getLogger(__name__)


def gathered(waiting: queue.SimpleQueue[T | None], most: int, size: Callable[[T], int] = lambda item: 1) -> list[T]:
    """All items of a queue up to a size, at least one; none once there is a None, which ends it."""
    items: list[T] = []
    total = 0
    while total < most and (not items or not waiting.empty()):
        item = waiting.get()
        if item is None:
            waiting.put(None)  # for the next call, which then returns none
            break
        items.append(item)
        total += size(item)
    return items


class DurableGroup(NamedTuple):
    """Entries that became durable together: the journal's number of the last entry, and the time (monotonic)."""

    entries: list[Entry]
    number: int
    at: float


@dataclass
class Appender:
    """Group commit: entries queued during a sync are written and synced by the next one. A None ends the thread."""

    journal: Journal
    entries: queue.SimpleQueue[Entry | None]
    groups: queue.SimpleQueue[Any]
    system: System = SYSTEM
    _ending: threading.Event = field(init=False)

    def __post_init__(self) -> None:
        self._ending = self.system.threads.event()

    def run(self, durable: Callable[[list[Entry]], None]) -> None:
        """Work until the end of the queue. durable: called with each group after its sync."""
        while entries := gathered(self.entries, GROUP_BYTES, lambda entry: len(entry.frame)):
            number = self._append(entries)
            if number is None:
                break
            # Before the acknowledgement: a read that follows it waits for the groups queued here.
            self.groups.put(DurableGroup(entries, number, self.system.clock.monotonic()))
            durable(entries)
        self.groups.put(None)

    def end(self) -> None:
        """Give up waiting for free disk space."""
        self._ending.set()

    def _append(self, entries: list[Entry]) -> int | None:
        """The journal's number of the last entry. Retries while the disk is full; None where `end` was called."""
        frames = [entry.frame for entry in entries]
        failing = False
        while True:
            try:
                number = self.journal.append(frames)
            except OSError as error:
                if not failing:
                    _log.error("cannot write the journal: %s; acknowledging nothing until it can be", error.strerror)
                failing = True
                if self._ending.wait(RETRY_SECONDS):
                    return None
            else:
                if failing:
                    _log.info("the journal can be written again")
                return number
