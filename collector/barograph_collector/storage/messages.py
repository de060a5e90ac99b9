"""Decoding and validation: from the frames of a client to checked rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import IDENTIFIER, TEXT_LIMIT, Kind
from barograph_collector.storage.rows import CheckedRows

_UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError)
_OBJECTS_BYTES = 1000
"""Memory of a message's objects without its content, which dominates where there is one row."""
_DETAIL_LIMIT = 500  # characters of what a client sent that an answer quotes


class Undecodable(Exception):
    """Bytes that are no message of the protocol, so they name no stream to answer."""


class Item(NamedTuple):
    """One accepted message on its way to the database; `size` is its estimated memory in bytes.

    `frame` is an append with the same rows: the journal stores it, and `replayed` decodes it.
    """

    stream: str
    seq: int
    entry: CheckedRows
    frame: bytes
    size: int
    refusal: wire.Refuse | None = None


def decode(frames: list[bytes]) -> wire.FromClient:
    """Decode the frames of one message. Raises Undecodable, whose text is one of `counters.REASONS`."""
    if len(frames) != 1:
        raise Undecodable("multipart")
    try:
        if len(frames[0]) > wire.MAX_APPEND_BYTES:
            # Refused for its size, so its rows are not decoded.
            heading = wire.decode_heading(frames[0])
            return wire.Append(heading.stream, heading.seq, heading.table, heading.rows, {})
        message: wire.FromClient = wire.decode_from_client(frames[0])
    except _UNDECODABLE:
        return _foreign_hello(frames[0])
    return message


def _foreign_hello(frame: bytes) -> wire.Hello:
    """The hello of another protocol version, which is answered whatever else it holds. Raises Undecodable."""
    try:
        hello = wire.decode_any_hello(frame)
    except _UNDECODABLE:
        raise Undecodable("undecodable") from None
    if hello.version == wire.VERSION:
        raise Undecodable("undecodable")
    return wire.Hello(hello.stream, hello.version)


def check_stream(name: str) -> None:
    """Raises wire.Invalid for a stream name that is no identifier."""
    if not IDENTIFIER.fullmatch(name):
        raise wire.Invalid(f"stream is {name[:140]!r}, expected {Kind.NAME.text}")


def appended(message: wire.Append, frame: bytes, at: float) -> Item:
    """The rows of an append. An invalid one is recorded in `events` instead, which uses up its number."""
    try:
        entry = _checked(message)
    except wire.Invalid as error:
        return refused(message, "invalid", str(error), at)
    # In memory twice until it is in the database, as a frame and as columns, whose scalars are expanded to rows.
    size = 2 * len(frame) + 8 * message.rows + _OBJECTS_BYTES
    return Item(message.stream, message.seq, entry, frame, size)


def refused(message: wire.Append, reason: str, detail: str, at: float) -> Item:
    """The record of an append that is refused: answered once it is durable."""
    detail = detail[:_DETAIL_LIMIT]
    refusal = wire.Refuse(message.stream, message.seq, reason, detail)
    return _event(message, "refused", message.rows, detail, at, refusal)


def skipped(message: wire.Skip, at: float) -> Item:
    """The record of messages that a producer has dropped."""
    return _event(message, "dropped", message.rows, message.reason, at)


def replayed(frame: bytes) -> Item:
    """The item of an `Item.frame`. Raises Undecodable and wire.Invalid where the journal is damaged."""
    message = decode([frame])
    if not isinstance(message, wire.Append):
        raise Undecodable("undecodable")
    return Item(message.stream, message.seq, _checked(message), frame, 0)


def _checked(message: wire.Append) -> CheckedRows:
    table = wire.table_named(message.table)
    if not 1 <= message.rows <= wire.MAX_ROWS:
        raise wire.Invalid(f"rows is {message.rows}, expected 1 to {wire.MAX_ROWS}")
    columns = wire.check(message.columns, table.columns, message.rows, defaults=table.defaults)
    if message.rows > 1:
        spread = sum(len(value) for value in columns.values() if isinstance(value, str)) * message.rows
        if spread > wire.MAX_BYTES:
            detail = f"scalar text comes to {spread} characters in all rows, expected at most {wire.MAX_BYTES}"
            raise wire.Invalid(detail)
    return CheckedRows(table.name, message.rows, columns)


def _event(
    message: wire.Append | wire.Skip, kind: str, rows: int, detail: str, at: float, refusal: wire.Refuse | None = None
) -> Item:
    bounded = min(max(rows, 0), 2**63 - 1)
    values: dict[str, Any] = {
        "source": message.stream,
        "kind": kind,
        "rows": bounded,
        "detail": detail[:TEXT_LIMIT],
        "at": at,
    }
    event = wire.append(message.stream, message.seq, "events", 1, values)
    return Item(message.stream, message.seq, _checked(event), wire.encode(event), 0, refusal)
