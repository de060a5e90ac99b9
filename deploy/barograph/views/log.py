"""Queries of the log with a cache of their results."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TextIO

import pyarrow as pa

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.protocol import wire
from barograph_agent.protocol.wire import Result
from barograph_agent.system.clock import CLOCK
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused

MAX_AGE: Final = 2.0
"""Seconds for which a cached result is used, so that the load does not grow with the number of viewers."""
CACHE_SIZE: Final = 128
"""Results in the cache; the least recently used are evicted."""
RETRY_SECONDS: Final = 3.0
"""Seconds between attempts to reach a collector that does not answer."""
SEARCH: Final = threading.Lock()
"""Held by a search, which reads much of the log: searches wait for each other, pages for none."""
READERS: Final = 3
"""Connections to a collector. A query that takes long occupies one."""
PROBE_SECONDS: Final = 10.0
"""Seconds between questions whether the collector takes rows."""
ELAPSED_SECONDS: Final = 5.0
"""Duration from which on it is shown that something takes long."""

Row = dict[str, Any]


class QueryLimits(NamedTuple):
    """Limits of a query: rows of the result, seconds in the database, seconds until the collector must answer."""

    rows: int
    query_seconds: float
    answer_seconds: float


INTERACTIVE: Final = QueryLimits(20_000, 10.0, 5.0)
"""For pages: a collector that is busy answers a read within seconds."""
BATCH: Final = QueryLimits(wire.MAX_SQL_ROWS, wire.MAX_SQL_SECONDS, 20.0)
"""For files."""


@dataclass(frozen=True, slots=True)
class CachedResult:
    """The rows of a query. at: Unix seconds of the query. truncated: whether the row limit cut the result.

    note: what it was computed without.
    """

    rows: list[Row]
    at: float
    truncated: bool
    note: str = ""


class LogView:
    """Queries a collector and caches the results. Thread-safe; READERS queries run at a time, each of them once.

    clock: Unix seconds. `unavailable_since`: when the collector first failed to answer, None while it answers.
    """

    def __init__(
        self,
        endpoint: str,
        key: ClientKey | None = None,
        limits: QueryLimits = INTERACTIVE,
        clock: Callable[[], float] = CLOCK.now,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """retry_seconds: between attempts to reach a collector that does not answer."""
        self.unavailable_since: float | None = None
        self.clock = clock
        self._limits = limits
        self._retry_seconds = retry_seconds
        self._unavailable = LogUnavailable()
        self._readers: SimpleQueue[LogReader] = SimpleQueue()
        for _ in range(READERS):
            self._readers.put(LogReader(endpoint, limits.answer_seconds, key))
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, CachedResult] = OrderedDict()
        self._running: dict[str, Future[ReadRefused | None]] = {}
        """Queries under way by their names in the cache; the result is the collector's refusal, if any."""
        self._answered_at = 0.0
        self._tried_at = 0.0
        self.intake_trouble = ""
        """Why the collector takes no rows of anybody; empty where it does."""
        self._probed_at = 0.0

    def query(self, query: str, max_age: float = MAX_AGE, name: str = "") -> CachedResult:
        """The result of one SELECT, at most `max_age` seconds old, or older while the collector does not answer.

        name: the key in the cache, for a query whose text changes with time; by default the text.
        Raises LogUnavailable and ReadRefused where the query fails and the cache has no result of it.
        """
        name = name or query
        with self._lock:
            cached, now = self._cache.get(name), self.clock()
            if cached is not None and now - cached.at < max_age:
                return cached
            running = self._running.get(name)
            is_due = self.unavailable_since is None or now - self._tried_at >= self._retry_seconds
            if is_new := running is None and is_due:
                running = self._running[name] = Future()
                self._tried_at = now
        if running is not None and is_new:
            refusal: ReadRefused | None = None
            try:
                refusal = self._run(query, name)
            finally:
                with self._lock:
                    del self._running[name]
                running.set_result(refusal)
        error = (running.result() if running is not None else None) or self._unavailable
        with self._lock:
            if (cached := self._cache.get(name)) is None:
                raise type(error)(str(error))
            self._cache.move_to_end(name)
            return cached

    def _run(self, query: str, name: str) -> ReadRefused | None:
        """Put the result into the cache, once a reader is free."""
        reader = self._readers.get()
        try:
            if self.unavailable_since is not None or self.clock() - self._answered_at > RETRY_SECONDS:
                # Queries may queue for seconds. A read does not: it shows at once whether a collector answers.
                reader.read("events", -1, 1)
            if self.clock() - self._probed_at > PROBE_SECONDS:
                self._probed_at = self.clock()
                self.intake_trouble = reader.intake_trouble()
            result = reader.query(query, self._limits.rows, self._limits.query_seconds)
        except LogUnavailable as error:
            self.unavailable_since = self.unavailable_since or self.clock()
            self._unavailable = error
            return None
        except ReadRefused as error:
            # The collector answers, but not this query: it may have taken too long.
            self._answered_at, self.unavailable_since = self.clock(), None
            return error
        finally:
            self._readers.put(reader)
        self._answered_at, self.unavailable_since = self.clock(), None
        with self._lock:
            self._cache[name] = CachedResult(rows_of(result), self._answered_at, result.more, result.note)
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return None

    def close(self) -> None:
        """Close the connections, once the queries under way have ended."""
        for _ in range(READERS):
            self._readers.get().close()


@contextmanager
def elapsed(what: str, out: TextIO | None = None, after: float = ELAPSED_SECONDS) -> Iterator[None]:
    """Show on a terminal how long the body takes, once that is more than `after` seconds. out: standard error."""
    terminal = out or sys.stderr
    if not terminal.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        begun, wait = CLOCK.monotonic(), after
        while not over.wait(wait):
            wait = 1.0
            print(f"\r{what}: {CLOCK.monotonic() - begun:.0f} s", end="", file=terminal, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        print("\r\x1b[K", end="", file=terminal, flush=True)


class PatientReader(LogReader):
    """A reader for commands: a query that takes long is seen on the terminal."""

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> Result:
        """As LogReader has it."""
        with elapsed(f"waiting for the log, at most {seconds + self.timeout:g} s"):
            return super().query(text, limit, seconds)


def arrow_of(answer: Result) -> pa.Table:
    """The result of a query as an Arrow table."""
    return pa.ipc.open_stream(answer.stream).read_all()


def rows_of(answer: Result) -> list[Row]:
    """The result of a query, one map per row."""
    found: list[Row] = arrow_of(answer).to_pylist()
    return found


def limits(row: Mapping[str, Any], unit: float = 1.0) -> tuple[float, float, float]:
    """Lower, expected and upper limit of a band or a prediction in units of which a second has `unit`."""
    lower, expected, upper = (unit * float(row[f"{name}_seconds"]) for name in ("lower", "expected", "upper"))
    return lower, expected, upper
