"""The log as the page asks it: one question at a time, each answer kept for as long as somebody may look at it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from barograph.commands.sql import rows_of
from barograph_agent.deliver.keys import ClientKey
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused

FRESH: Final = 2.0
"""Seconds for which an answer is as good as a new one: however many people look, the log is asked this often."""
ANSWERS: Final = 128
"""Answers kept; those not asked for the longest go first."""
ROWS: Final = 20_000
QUERY_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 2.0
"""How long a collector that is there may take to say anything."""
AGAIN: Final = 3.0
"""Seconds after which a collector that did not answer is asked again."""

Row = dict[str, Any]


class LogUnreachable(Exception):
    """The log did not answer, and never answered this question before. The text names it and what to do."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """Rows, and when the log gave them, in Unix seconds; `more` where there were too many to give."""

    rows: list[Row]
    at: float
    more: bool


class CachedLog:
    """Asks the collector and remembers what it said. Any thread may ask; one at a time does.

    clock: Unix seconds. `away_since` is when it first failed to answer, None while it answers.
    """

    def __init__(self, endpoint: str, key: ClientKey | None = None, clock: Callable[[], float] = time.time) -> None:
        self.away_since: float | None = None
        self._trouble = ""
        self.clock = clock
        self._reader = LogReader(endpoint, ANSWER_SECONDS, key)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, CachedAnswer] = OrderedDict()
        self._heard_at = 0.0
        self._tried_at = 0.0

    def ask(self, query: str, fresh: float = FRESH, name: str = "") -> CachedAnswer:
        """The rows of one SELECT, at most `fresh` seconds old, older only where the log is away. Raises Away.

        name: what the answer is kept under, for a question whose text goes with the time; else its text.
        """
        name = name or query
        with self._lock:
            kept = self._kept.get(name)
            now = self.clock()
            if kept is not None and now - kept.at < fresh:
                return kept
            if self.away_since is None or now - self._tried_at >= AGAIN:
                self._tried_at = now
                self._try(query, name)
            kept = self._kept.get(name)
            if kept is None:
                raise LogUnreachable(self._trouble)
            self._kept.move_to_end(name)
            return kept

    def _try(self, query: str, name: str) -> None:
        try:
            if self.away_since is not None or self.clock() - self._heard_at > AGAIN:
                # A query may wait behind those of others; whether anybody is there at all shows at once.
                self._reader.read("events", -1, 1)
            answer = self._reader.query(query, ROWS, QUERY_SECONDS)
        except LogUnavailable as error:
            self.away_since = self.away_since or self.clock()
            self._trouble = str(error)
            return
        except ReadRefused as error:
            # It is there, and has no answer to this one question: it may have taken too long.
            self._heard()
            self._trouble = str(error)
            return
        self._heard()
        self._kept[name] = CachedAnswer(rows_of(answer).to_pylist(), self._heard_at, answer.more)
        while len(self._kept) > ANSWERS:
            self._kept.popitem(last=False)

    def _heard(self) -> None:
        self._heard_at = self.clock()
        self.away_since, self._trouble = None, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._reader.close()
