"""The client for reading the log: one request, one answer, with reconnects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec
import zmq

from barograph_agent.deliver.handshake import Handshakes
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.protocol import wire

ATTEMPTS: Final = 2
A = TypeVar("A", wire.Rows, wire.Result)


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


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query: an Arrow IPC stream of `rows` rows. more: whether the limit cut it off."""

    stream: bytes
    rows: int
    more: bool


class LogReader:
    """Not thread-safe. An unanswered read is sent again on a new connection after half of the timeout."""

    def __init__(self, endpoint: str, timeout: float = 10.0, key: ClientKey | None = None) -> None:
        """timeout: of one read, in seconds. key: for a collector that requires one."""
        self.endpoint = endpoint
        self.timeout = timeout
        self._key = key
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._connection: tuple[zmq.Socket[bytes], Handshakes] | None = None
        self._request = 0

    def read(self, table: str, after: int, limit: int = wire.MAX_ROWS, job: str = "") -> RowBatch:
        """At most `limit` rows of `table` with offset > `after`; a negative `after` means the last -after rows.

        `job` selects the rows of one job. A page may be shorter than `limit` although more rows follow: only an empty
        one is the end. Raises LogUnavailable and ReadRefused.
        """
        for _ in range(ATTEMPTS):
            self._request += 1
            request = wire.Read(self._request, table, after, limit, job)
            answer = self._ask(request, wire.Rows, self.timeout / ATTEMPTS)
            if answer is not None:
                return _batch(answer)
            self._disconnect()
        raise self._unavailable(self.timeout)

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> QueryResult:
        """At most `limit` rows of one SELECT that may run for `seconds`. Raises LogUnavailable and ReadRefused."""
        self._request += 1
        # Other queries may be ahead of this one, each with its own time. Sent once only: a query is expensive.
        waiting = seconds + self.timeout
        answer = self._ask(wire.Sql(self._request, text, limit, seconds), wire.Result, waiting)
        if answer is None:
            self._disconnect()
            raise self._unavailable(waiting)
        if answer.error:
            raise ReadRefused(answer.error)
        return QueryResult(answer.stream, answer.rows, answer.more)

    def read_all(self, table: str, after: int = 0, job: str = "") -> Iterator[RowBatch]:
        """All pages up to the present end of the table."""
        while (batch := self.read(table, after, job=job)).rows:
            yield batch
            after = batch.next_offset

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _unavailable(self, seconds: float) -> LogUnavailable:
        return LogUnavailable(
            f"no answer from the collector at {self.endpoint} within {seconds:g} s;"
            " check that `barograph collector` runs there"
        )

    def _ask(self, request: wire.Read | wire.Sql, kind: type[A], seconds: float) -> A | None:
        socket, handshakes = self._connection = self._connection or self._connect()
        sent = handshakes.send(wire.encode(request), seconds)
        # Answers to earlier requests that timed out may still arrive on this socket.
        while sent and handshakes.wait(seconds):
            try:
                answer = wire.decode_from_collector(socket.recv())
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise LogUnavailable(f"{self.endpoint} does not speak the log protocol: {error}") from None
            if isinstance(answer, kind) and answer.request == request.request:
                return answer
        if trouble := handshakes.trouble:
            self._disconnect()
            raise LogUnavailable(f"not let in by the collector at {self.endpoint}: {trouble}")
        return None

    def _connect(self) -> tuple[zmq.Socket[bytes], Handshakes]:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, "[" in self.endpoint)
        socket.setsockopt(zmq.MAXMSGSIZE, wire.MAX_BYTES)
        if self._key is not None:
            self._key.apply(socket)
        handshakes = Handshakes(socket)
        socket.connect(self.endpoint)
        return socket, handshakes

    def _disconnect(self) -> None:
        if self._connection is not None:
            socket, handshakes = self._connection
            handshakes.close()
            socket.close()
            self._connection = None


def _batch(answer: wire.Rows) -> RowBatch:
    if answer.error:
        raise ReadRefused(answer.error)
    return RowBatch(
        wire.unpack(answer.columns, wire.READ_KINDS[answer.table], answer.rows, strict=False),
        answer.rows,
        answer.next_offset,
    )
