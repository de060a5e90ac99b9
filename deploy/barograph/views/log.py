"""The log as views ask it: one question at a time, and each answer is kept for as long as it may be looked at."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.protocol.wire import Column
from barograph_collector.client.log_reader import LogReader, LogUnavailable, QueryResult, ReadRefused
from barograph_collector.query.sql import ROWS_LIMIT, SECONDS_LIMIT

FRESH: Final = 2.0
"""Seconds for which an answer is as good as a new one: however many people look, the log is asked this often."""
ANSWERS: Final = 128
"""Answers kept; those not asked for the longest go first."""
RETRY_SECONDS: Final = 3.0
"""Seconds after which a collector that did not answer is asked again."""

Row = dict[str, Any]


class QueryLimits(NamedTuple):
    """How many rows an answer has at most, how long its query may run, and how long a collector may say nothing."""

    rows: int
    query_seconds: float
    answer_seconds: float


WATCHED: Final = QueryLimits(20_000, 10.0, 2.0)
"""Where somebody waits in front of a browser."""
WRITTEN: Final = QueryLimits(ROWS_LIMIT, SECONDS_LIMIT, 20.0)
"""Where a file is written."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Rows, and when the log gave them, in Unix seconds; `more` where there were too many to give."""

    rows: list[Row]
    at: float
    more: bool


class LogView:
    """Asks the collector and keeps its answers. Any thread may ask; one query runs at a time.

    clock: Unix seconds. `away_since` is when it first failed to answer, None while it answers.
    """

    def __init__(
        self,
        endpoint: str,
        key: ClientKey | None = None,
        limits: QueryLimits = WATCHED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.away_since: float | None = None
        self.clock = clock
        self._limits = limits
        self._error: LogUnavailable | ReadRefused | None = None
        self._reader = LogReader(endpoint, limits.answer_seconds, key)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, KeptAnswer] = OrderedDict()
        self._answered_at = 0.0
        self._tried_at = 0.0

    def ask(self, query: str, fresh: float = FRESH, name: str = "") -> KeptAnswer:
        """The rows of one SELECT, at most `fresh` seconds old, older only where the log does not answer.

        name: what the answer is kept under, for a query whose text changes with the time; else its text.
        Raises LogUnavailable and ReadRefused where the log has no answer and never gave one.
        """
        name = name or query
        with self._lock:
            kept = self._kept.get(name)
            now = self.clock()
            if kept is not None and now - kept.at < fresh:
                return kept
            if self.away_since is None or now - self._tried_at >= RETRY_SECONDS:
                self._tried_at = now
                self._try(query, name)
            kept = self._kept.get(name)
            if kept is None:
                assert self._error is not None
                raise type(self._error)(str(self._error))
            self._kept.move_to_end(name)
            return kept

    def _try(self, query: str, name: str) -> None:
        try:
            if self.away_since is not None or self.clock() - self._answered_at > RETRY_SECONDS:
                # A query may wait behind those of others; whether the collector is there at all shows at once.
                self._reader.read("events", -1, 1)
            answer = self._reader.query(query, self._limits.rows, self._limits.query_seconds)
        except LogUnavailable as error:
            self.away_since = self.away_since or self.clock()
            self._error = error
            return
        except ReadRefused as error:
            # The collector is there, and has no answer to this one query: it may have taken too long.
            self._answered()
            self._error = error
            return
        self._answered()
        self._kept[name] = KeptAnswer(rows_of(answer), self._answered_at, answer.more)
        while len(self._kept) > ANSWERS:
            self._kept.popitem(last=False)

    def _answered(self) -> None:
        self._answered_at = self.clock()
        self.away_since = self._error = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._reader.close()


def arrow_of(answer: QueryResult) -> pa.Table:
    """The rows of an answer as an Arrow table."""
    return pa.ipc.open_stream(answer.stream).read_all()


def rows_of(answer: QueryResult) -> list[Row]:
    """The rows of an answer, a map each."""
    found: list[Row] = arrow_of(answer).to_pylist()
    return found


def rows(columns: Mapping[str, Column]) -> Iterator[Row]:
    """Columns of a read turned into one map per row."""
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def limits(row: Mapping[str, Any], unit: float = 1.0) -> tuple[float, float, float]:
    """Lower, expected and upper limit of a band or a prediction; unit: how many of them a second has."""
    lower, expected, upper = (unit * float(row[f"{name}_seconds"]) for name in ("lower", "expected", "upper"))
    return lower, expected, upper
