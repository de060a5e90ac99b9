"""One message of every type, and what they looked like on the wire in every released version."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import Kind

RECORDED: Final = Path(__file__).resolve().parents[1] / "data/wire"
_KINDS: Final = {
    "job": Kind.NAME,
    "ended_at": Kind.F64,
    "intervals": Kind.I64,
    "class_id": Kind.U64,
    "detail": Kind.TEXT,
}
"""One column of every kind. No table has just these: tables may change, what was recorded may not."""


def _columns(job: str | list[str]) -> dict[str, wire.Wire]:
    values = {"job": job, "ended_at": [1.5, 2.5], "intervals": 0, "class_id": [2**63, 7], "detail": "a\n"}
    return wire.pack(values, _KINDS)


_STREAM: Final = "lab/4711.0.0/a1b2"
EXAMPLES: Final[dict[str, wire.FromClient | wire.FromCollector]] = {
    "hello": wire.Hello(_STREAM, credential="token:{}", number=3),
    "append": wire.Append(_STREAM, 2**40, "runs", 2, _columns("lab/4711.0.0")),
    "append-list": wire.Append(_STREAM, 1, "runs", 2, _columns(["lab/4711.0.0", "lab/4712.0.0"])),
    "skip": wire.Skip(_STREAM, 41, 1234, "spool-cap"),
    "read": wire.Read(7, "scores", -1, 1, "lab/4711.0.0"),
    "read-round": wire.Read(9, "", 0, 10, tables={"blocks": 40, "runs": 0}, seconds=5.0),
    "sql": wire.Sql(8, "SELECT 1", 10, 2.5),
    "welcome": wire.Welcome(_STREAM, 40, 64, number=3),
    "ack": wire.Ack(_STREAM, 41, 64),
    "refuse": wire.Refuse(_STREAM, 42, "gap", "seq is 43, expected 42"),
    "rows": wire.Rows(7, "runs", 2, _columns("lab/4711.0.0"), 9),
    "rows-round": wire.Rows(9, "", 2, {"runs": _columns("lab/4711.0.0")}, 9),
    "result": wire.Result(8, b"\xff\xff\xff\xff", 0, False),
}


def recorded(version: int) -> dict[str, bytes]:
    """The messages of a version, as its first release sent them."""
    return _messages(f"v{version}.txt")


def _messages(file: str) -> dict[str, bytes]:
    lines = (line.split() for line in (RECORDED / file).read_text().splitlines())
    return {name: bytes.fromhex(digits) for name, digits in lines}


def decode(frame: bytes) -> wire.FromClient | wire.FromCollector:
    """A message of either direction."""
    try:
        client: wire.FromClient = wire.decode_from_client(frame)
        return client
    except msgspec.ValidationError:
        collector: wire.FromCollector = wire.decode_from_collector(frame)
        return collector
