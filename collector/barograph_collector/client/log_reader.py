"""The client for reading the log: one request, one answer, with reconnects."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import zmq

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.protocol import wire
from barograph_agent.system.connection import Connection
from barograph_agent.system.system import SYSTEM, System

ATTEMPTS: Final = 2
_log = logging.getLogger(__name__)
A = TypeVar("A", wire.Rows, wire.Result)
Round: TypeAlias = tuple[int, Mapping[str, Mapping[str, wire.Column]]]
"""An offset, and rows of some tables as columns: all rows of the tables that were asked for, up to this offset."""


class LogUnavailable(Exception):
    """The collector did not answer. The text names its endpoint, the timeout, and what to do."""


class ReadRefused(ValueError):
    """The collector refused the request; the text is the collector's."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows in the order of their offsets.

    `columns` has every column of the table and `offset`, each an array (numbers) or list (text) of `rows` values.
    `next_offset` is the `after` of the next read.
    """

    columns: dict[str, wire.Column]
    rows: int
    next_offset: int


class _Wait(NamedTuple):
    """A read that waits for rows: its number, how many connections there had been, and when its answer is overdue."""

    number: int
    connections: int
    deadline: float


class LogReader:
    """Not thread-safe. An unanswered read is sent again on a new connection after half of the timeout.

    What an answer lacks, such as days that the collector could not read, is a warning in the log of this process.
    """

    def __init__(
        self,
        endpoint: str,
        timeout: float = 10.0,
        key: ClientKey | None = None,
        system: System = SYSTEM,
    ) -> None:
        """timeout: of one read, in seconds. key: for a collector that requires one."""
        self.endpoint = endpoint
        self.timeout = timeout
        self._key = key
        self._clock = system.clock.monotonic
        self._network = system.network
        self._connection: Connection | None = None
        self._former = 0
        """How often former connections were established."""
        self._request = 0
        self._note = ""
        self._wait: _Wait | None = None

    def read(self, table: str, after: int, limit: int = wire.MAX_ROWS, job: str = "") -> RowBatch:
        """At most `limit` rows of `table` with offset > `after`; a negative `after` means the last -after rows.

        `job` selects the rows of one job. A page may be shorter than `limit` although more rows follow: only an empty
        one is the end. Raises LogUnavailable and ReadRefused.
        """
        answer = self._repeat(wire.Read(0, table, after, limit, job))
        columns = wire.unpack(answer.columns, wire.READ_KINDS[answer.table], answer.rows, strict=False)
        return RowBatch(columns, answer.rows, answer.next_offset)

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        """A round of some tables: of each the rows beyond its offset, at most `limit`.

        With `seconds` the collector waits so long for a row, and this returns None meanwhile. To be called again, with
        the same arguments, when what `register` registers is ready, or `seconds` + `timeout` later.
        Raises LogUnavailable and ReadRefused.
        """
        request = wire.Read(0, "", 0, limit, tables=dict(offsets), seconds=seconds)
        if seconds <= 0:
            return _round(self._repeat(request))
        while True:
            wait = self._wait = self._wait or self._begin_wait(request)
            if (answer := self._receive(wait.number, wire.Rows, 0.0)) is not None:
                self._wait = None
                return _round(self._checked(answer))
            if self._clock() > wait.deadline:
                raise self._unavailable(self.timeout)
            if self._connection is None or self._connection.count <= wait.connections:
                return None
            # The connection is another one since, whose collector does not know of the request.
            self._wait = None

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for the answer that `follow` waits for."""
        if self._connection is not None:
            self._connection.register(poller)

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> wire.Result:
        """At most `limit` rows of one SELECT that may run for `seconds`. Raises LogUnavailable and ReadRefused."""
        # Other queries may be ahead of this one, each with its own time. Sent once only: a query is expensive.
        waiting = seconds + self.timeout
        answer = self._ask(wire.Sql(0, text, limit, seconds), wire.Result, waiting)
        if answer is None:
            raise self._unavailable(waiting)
        return self._checked(answer)

    def read_all(self, table: str, after: int = 0, job: str = "") -> Iterator[RowBatch]:
        """All pages up to the present end of the table."""
        while (batch := self.read(table, after, job=job)).rows:
            yield batch
            after = batch.next_offset

    def read_latest(self, table: str, rows: int) -> Iterator[RowBatch]:
        """Pages with the last rows of the table, at most so many, up to the present end."""
        batch = self.read(table, -rows)
        if batch.rows:
            yield batch
            yield from self.read_all(table, batch.next_offset)

    @property
    def connections(self) -> int:
        """How often a connection has been established; more than once if the collector was started again."""
        return self._former + (self._connection.count if self._connection is not None else 0)

    def identity(self) -> str:
        """The name of the log, which it keeps wherever it is. Raises LogUnavailable."""
        try:
            answer = self.query("SELECT name FROM identity", 1, 1.0)
        except ReadRefused as error:
            raise LogUnavailable(f"the collector at {self.endpoint} does not name its log: {error}") from None
        return str(pa.ipc.open_stream(answer.stream).read_all()["name"][0].as_py())

    def intake_trouble(self) -> str:
        """Why the collector takes no rows of anybody; empty where it does. Raises LogUnavailable."""
        connection = self._connection = self._connection or self._connect()
        # A hello is refused for that reason before anything else about it is checked.
        connection.send(wire.encode(wire.Hello("probe")), self.timeout)
        deadline = self._clock() + self.timeout
        while (left := deadline - self._clock()) > 0 and connection.wait(left):
            try:
                answer = wire.decode_from_collector(connection.receive())
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if isinstance(answer, wire.Refuse):
                return answer.detail if answer.reason in wire.WITHHELD else ""
            if isinstance(answer, wire.Welcome):
                return ""
        raise self._unavailable(self.timeout)

    def close(self) -> None:
        """Close the connection; the next request is sent over another one."""
        if self._connection is not None:
            self._former += self._connection.count
            self._connection.close()
            self._connection = None
            self._wait = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _unavailable(self, seconds: float) -> LogUnavailable:
        """Close the connection; the error says why nothing was answered within `seconds`."""
        trouble = self._connection.trouble if self._connection is not None else ""
        self.close()
        if trouble:
            return LogUnavailable(f"not admitted by the collector at {self.endpoint}: {trouble}")
        return LogUnavailable(
            f"no answer from the collector at {self.endpoint} within {seconds:g} s;"
            " check that `barograph up` or `barograph collector` runs there"
        )

    def _begin_wait(self, request: wire.Read) -> _Wait:
        number, connection = self._send(request, 0.0)
        # Before the first connection is established ZeroMQ keeps the request for it.
        overdue = self._clock() + request.seconds + self.timeout / ATTEMPTS
        return _Wait(number, max(connection.count, 1), overdue)

    def _repeat(self, request: wire.Read) -> wire.Rows:
        for _ in range(ATTEMPTS):
            if (answer := self._ask(request, wire.Rows, self.timeout / ATTEMPTS)) is not None:
                return self._checked(answer)
            self.close()
        raise self._unavailable(self.timeout)

    def _ask(self, request: wire.Read | wire.Sql, kind: type[A], seconds: float) -> A | None:
        # The answer that a wait is for would be discarded.
        self._wait = None
        number, _ = self._send(request, seconds)
        return self._receive(number, kind, seconds)

    def _send(self, request: wire.Read | wire.Sql, seconds: float) -> tuple[int, Connection]:
        """Send a request within `seconds`; returns its number, and the connection."""
        connection = self._connection = self._connection or self._connect()
        self._request += 1
        connection.send(wire.encode(msgspec.structs.replace(request, request=self._request)), seconds)
        return self._request, connection

    def _receive(self, number: int, kind: type[A], seconds: float) -> A | None:
        """The answer to a request; None where it does not come within `seconds`."""
        assert self._connection is not None
        connection = self._connection
        # Answers to earlier requests that timed out may still arrive on this socket.
        while connection.wait(seconds):
            try:
                answer = wire.decode_from_collector(connection.receive())
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise LogUnavailable(f"{self.endpoint} does not speak the log protocol: {error}") from None
            if isinstance(answer, kind) and answer.request == number:
                return answer
        if connection.trouble:
            raise self._unavailable(seconds)
        return None

    def _checked(self, answer: A) -> A:
        if answer.error:
            raise ReadRefused(answer.error)
        if answer.note and answer.note != self._note:
            self._note = answer.note
            _log.warning("%s", answer.note)
        return answer

    def _connect(self) -> Connection:
        return self._network.connect(self.endpoint, self._key, reads=True, limit_bytes=wire.MAX_BYTES)


def _round(answer: wire.Rows) -> Round:
    tables = {}
    for table, columns in answer.columns.items():
        kinds = wire.READ_KINDS[table]
        rows = len(columns["log_offset"]) // kinds["log_offset"].dtype.itemsize
        tables[table] = wire.unpack(columns, kinds, rows, strict=False)
    return answer.next_offset, tables
