"""Decoding and validation: from the frames of a client to checked rows."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import IDENTIFIER, TEXT_LIMIT, Kind
from barograph_collector.storage.rows import Entry

_UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError)
_OBJECTS_BYTES = 1000
"""Memory of the objects of a message without its content; dominates for messages of one row."""
_DETAIL_LIMIT = 500  # characters
MAX_DROPPED: Final = 2**40
"""Rows that one message may say to be dropped."""


class Undecodable(Exception):
    """A frame that is no message of the protocol; there is no stream to answer."""


def decode(frames: list[bytes]) -> wire.FromClient:
    """Decode the frames of one message, but not the columns of an append.

    Raises Undecodable, whose text is one of `counters.REASONS`.
    """
    if len(frames) != 1:
        raise Undecodable("multipart")
    (frame,) = frames
    try:
        message: wire.FromClient = wire.decode_received(frame)
    except _UNDECODABLE:
        # A hello of another protocol version is answered, whatever its other fields are.
        with contextlib.suppress(*_UNDECODABLE):
            hello = wire.decode_any_hello(frame)
            if hello.version != wire.VERSION:
                return wire.Hello(hello.stream, hello.version)
        raise Undecodable("undecodable") from None
    return message


def check_stream(name: str) -> None:
    """Raises wire.Invalid for a stream name that is no identifier."""
    if not IDENTIFIER.fullmatch(name):
        raise wire.Invalid(f"stream is {name[:140]!r}, expected {Kind.NAME.text}")


def appended(message: wire.Append, frame: bytes, at: float) -> Entry:
    """The rows of an append. An invalid append is recorded in `events` instead, which consumes its number."""
    # Until it is in the database a message is in memory twice: as a frame, and as columns of expanded scalars.
    size = 2 * len(frame) + 8 * message.rows + _OBJECTS_BYTES
    try:
        entry = checked(message, frame, size)
        # Not of rows that are replayed: an earlier version may have stored others.
        wire.check_values(entry.columns, wire.table_named(entry.table))
    except wire.Invalid as error:
        return refused(message, "invalid", str(error), at)
    return entry


def refused(message: wire.Append, reason: str, detail: str, at: float) -> Entry:
    """The record of a refused append. The refusal is sent once the record is durable."""
    refusal = wire.Refuse(message.stream, message.seq, reason, detail[:_DETAIL_LIMIT])
    return _event(message, "refused", message.rows, refusal.detail, at, refusal)


def skipped(message: wire.Skip, at: float) -> Entry:
    """The record of messages that a producer has dropped."""
    reason = message.reason if message.reason in wire.DROPS else "other"
    return _event(message, "dropped", min(message.rows, MAX_DROPPED), reason, at)


def with_rows(entry: Entry, rows: int | None) -> Entry:
    """The record of a refused or dropped message with another number of rows; for None, its number without a record."""
    columns = {} if rows is None else {**entry.columns, "rows": rows}
    frame = wire.encode(wire.Append(entry.stream, entry.seq, entry.table, int(rows is not None), columns))
    return entry._replace(rows=int(rows is not None), columns=columns, frame=frame)


def replayed(frame: bytes) -> Entry:
    """The entry of an `Entry.frame`. Raises Undecodable and wire.Invalid where the journal is damaged."""
    message = decode([frame])
    if not isinstance(message, wire.Append):
        raise Undecodable("undecodable")
    number = Entry(message.table, 0, {}, message.stream, message.seq, frame)
    return checked(message, frame) if message.rows else number


def checked(message: wire.Append, frame: bytes = b"", size: int = 0) -> Entry:
    """The rows of an append. Raises wire.Invalid."""
    table = wire.table_named(message.table)
    if not 1 <= message.rows <= wire.MAX_ROWS:
        raise wire.Invalid(f"rows is {message.rows}, expected 1 to {wire.MAX_ROWS}")
    columns = wire.check(message.columns, table.columns, message.rows, defaults=table.defaults)
    if message.rows > 1:
        spread = sum(len(value) for value in columns.values() if isinstance(value, str)) * message.rows
        if spread > wire.MAX_BYTES:
            raise wire.Invalid(
                f"scalar text comes to {spread} characters in all rows, expected at most {wire.MAX_BYTES}"
            )
    return Entry(table.name, message.rows, columns, message.stream, message.seq, frame, size)


def _event(
    message: wire.Append | wire.Skip, kind: str, rows: int, detail: str, at: float, refusal: wire.Refuse | None = None
) -> Entry:
    values: dict[str, Any] = {
        "source": message.stream,
        "kind": kind,
        "rows": min(max(rows, 0), 2**63 - 1),
        "detail": detail[:TEXT_LIMIT],
        "time": at,
    }
    event = wire.append(message.stream, message.seq, "events", 1, values)
    return checked(event, wire.encode(event))._replace(refusal=refusal)
