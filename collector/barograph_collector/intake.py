"""From a client's message to rows: the checks that stand between a socket and the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from barograph_agent import wire
from barograph_agent.tables import IDENTIFIER, TABLES, TEXT_LIMIT, Kind
from barograph_collector.store import Entry

_DETAIL_LIMIT = 500  # characters; what a client sent is quoted, never echoed at length


class Undecodable(Exception):
    """Bytes that are no message of the protocol: there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class Item:
    """One accepted message on its way to the database; `size` is about what it takes in memory, in bytes."""

    stream: str
    seq: int
    entry: Entry
    size: int
    refusal: wire.Refuse | None = None


def decode(frames: list[bytes]) -> wire.FromClient:
    """Decode what one peer sent. Raises Undecodable, whose text is one of `counters.UNDECODABLE`."""
    if len(frames) != 1:
        raise Undecodable("multipart")
    try:
        message: wire.FromClient = wire.decode_from_client(frames[0])
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError):
        raise Undecodable("undecodable") from None
    return message


def check_stream(name: str) -> None:
    """Raises wire.Invalid for a stream name that is no identifier."""
    if not IDENTIFIER.fullmatch(name):
        raise wire.Invalid(f"stream is {name[:140]!r}, expected {Kind.NAME.value}")


def appended(message: wire.Append, frame_bytes: int, at: float) -> Item:
    """The rows of an append. One that is invalid becomes its own record in `events`, so that its number is used up."""
    try:
        table = wire.table_of(message)
        if not 1 <= message.rows <= wire.MAX_ROWS:
            raise wire.Invalid(f"rows is {message.rows}, expected 1 to {wire.MAX_ROWS}")
        spread = sum(len(value) for value in message.columns.values() if isinstance(value, str)) * message.rows
        if spread > wire.MAX_BYTES:
            raise wire.Invalid(
                f"scalar text comes to {spread} characters in all rows, expected at most {wire.MAX_BYTES}"
            )
        columns = wire.unpack(message.columns, table.columns, message.rows)
    except wire.Invalid as error:
        detail = str(error)[:_DETAIL_LIMIT]
        entry = _event(message.stream, "refused", message.rows, detail, at)
        return Item(message.stream, message.seq, entry, 0, wire.Refuse(message.stream, message.seq, "invalid", detail))
    size = frame_bytes + spread + 8 * message.rows * (len(columns) + 1)
    return Item(message.stream, message.seq, Entry(table.name, message.rows, columns), size)


def skipped(message: wire.Skip, at: float) -> Item:
    """The record of what a producer has given up."""
    return Item(message.stream, message.seq, _event(message.stream, "dropped", message.rows, message.reason, at), 0)


def _event(source: str, kind: str, rows: int, detail: str, at: float) -> Entry:
    bounded = min(max(rows, 0), 2**63 - 1)
    values: dict[str, Any] = {"source": source, "kind": kind, "rows": bounded, "detail": detail[:TEXT_LIMIT], "at": at}
    kinds = TABLES["events"].columns
    return Entry("events", 1, wire.unpack(wire.pack(values, kinds), kinds, 1))
