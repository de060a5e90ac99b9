"""What no producer of ours would send. Add to these lists whatever has ever surprised a layer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from barograph_agent.protocol import wire
from helpers.log import blocks

_pack = msgspec.msgpack.encode

NOT_OF_THE_PROTOCOL: dict[str, list[bytes]] = {
    "nothing": [b""],
    "an opcode that does not exist": [b"\xc1"],
    "text": [b"GET / HTTP/1.1\r\n\r\n"],
    "zeros": [bytes(4096)],
    "an integer": [_pack(42)],
    "an empty map": [_pack({})],
    "a message cut short": [wire.encode(wire.Hello("s"))[:-1]],
    "a message and a half": [wire.encode(wire.Hello("s")) + b"\x81"],
    "a type that does not exist": [_pack({"type": "drop", "stream": "s"})],
    "a type that is a number": [_pack({"type": 1, "stream": "s"})],
    "a message of the other direction": [_pack({"type": "ack", "stream": "s", "seq": 1, "credit": 1})],
    "a field that is missing": [_pack({"type": "append", "stream": "s", "seq": 1, "table": "blocks"})],
    "a stream that is bytes": [_pack({"type": "hello", "stream": b"s"})],
    "a seq that is a fraction": [_pack({"type": "skip", "stream": "s", "seq": 1.5, "rows": 0, "reason": ""})],
    "a seq that is text": [_pack({"type": "skip", "stream": "s", "seq": "1", "rows": 0, "reason": ""})],
    "text that is not UTF-8": [b"\x82\xa4type\xa5hello\xa6stream\xa2\xff\xfe"],
    "a list said to have 2^32 - 1 elements": [b"\x82\xa4type\xa5hello\xa5extra\xdd\xff\xff\xff\xff\x01"],
    "bytes said to be 4 GiB": [b"\x82\xa4type\xa5hello\xa5extra\xc6\xff\xff\xff\xff\x01"],
    "a million nested lists": [b"\x82\xa4type\xa5hello\xa5extra" + b"\x91" * 1_000_000 + b"\x01"],
    "an envelope, as a REQ socket sends": [b"", wire.encode(wire.Hello("s"))],
    "many parts": [b"x"] * 1000,
    "two messages in one": [wire.encode(wire.Hello("s")), wire.encode(wire.Hello("s"))],
}

NOT_ZEROMQ: dict[str, bytes] = {
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS client": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "a greeting cut short": b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03",
    "a greeting with garbage behind": b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + b"\xff" * 256,
}

_GOOD = wire.pack(blocks(2), wire.TABLES["blocks"].columns)
_SITE = {"job": "lab/1.0.0", "class_id": 1, "from_site": "", "to_site": "", "operation": "o"}
_NAME = "an identifier of 1-128 characters from A-Z a-z 0-9 _ . : @ / + -"
_COLUMNS = ", ".join(wire.TABLES["blocks"].columns)


def _append(table: str = "blocks", rows: int = 2, **columns: Any) -> dict[str, Any]:
    return {"table": table, "rows": rows, "columns": {**_GOOD, **columns}}


# An append that decodes, and the words in which it is refused.
INVALID_APPENDS: dict[str, tuple[dict[str, Any], str]] = {
    "a table that does not exist": (
        _append(table='blocks"; DROP TABLE jobs; --'),
        "unknown table 'blocks\"; DROP TABLE jobs; --', expected one of " + ", ".join(wire.TABLES),
    ),
    "the table of the streams": (
        _append(table="streams"),
        "unknown table 'streams', expected one of " + ", ".join(wire.TABLES),
    ),
    "no rows": (_append(rows=0), "rows is 0, expected 1 to 65536"),
    "fewer than no rows": (_append(rows=-1), "rows is -1, expected 1 to 65536"),
    "too many rows": (_append(rows=65537), "rows is 65537, expected 1 to 65536"),
    "rows beyond 64 bits": (_append(rows=2**64 - 1), f"rows is {2**64 - 1}, expected 1 to 65536"),
    "a column that does not exist": (_append(colour=1), f"unknown column 'colour', expected one of {_COLUMNS}"),
    "an offset of its own": (_append(offset=1), f"unknown column 'offset', expected one of {_COLUMNS}"),
    "a column short of bytes": (
        _append(sum_seconds=bytes(15)),
        "column 'sum_seconds' has 15 bytes, expected 2 rows of 8 bytes",
    ),
    "a number that is text": (_append(count="1"), "column 'count' is str, expected 64-bit signed integers"),
    "an integer that is a fraction": (_append(count=1.5), "column 'count' is float, expected 64-bit signed integers"),
    "an integer that is true": (_append(count=True), "column 'count' is bool, expected 64-bit signed integers"),
    "an integer that is null": (_append(count=None), "column 'count' is NoneType, expected 64-bit signed integers"),
    "an integer too large": (_append(count=2**63), f"column 'count' is {2**63}, expected 64-bit signed integers"),
    "a class below zero": (_append(class_id=-1), "column 'class_id' is -1, expected 64-bit unsigned integers"),
    "a job that is bytes": (_append(job=b"test"), f"column 'job' is bytes, expected {_NAME}"),
    "jobs of another number": (_append(job=["a", "b", "c"]), "column 'job' has 3 values, expected 2"),
    "a job that is a number among names": (
        _append(job=["a", 1]),
        f"column 'job' has a value of type int, expected {_NAME}",
    ),
    "a job that is no identifier": (_append(job="../etc\n"), f"column 'job' is '../etc\\n', expected {_NAME}"),
    "a job without a name": (_append(job=["a", ""]), f"column 'job' is '', expected {_NAME}"),
    "text beyond its limit": (
        {"table": "sites", "rows": 1, "columns": {**_SITE, "from_site": "x" * 65537}},
        "column 'from_site' has 65537 characters, expected text of at most 65536 characters",
    ),
    "a scalar that is gigabytes in all rows": (
        {
            "table": "sites",
            "rows": 65536,
            "columns": {**_SITE, "from_site": "x" * 65536},
        },
        "scalar text comes to 4295622656 characters in all rows, expected at most 16777216",
    ),
}


def mutations(seed: int, count: int, stream: str = "hostile") -> Iterator[bytes]:
    """Messages of all types with bytes of them changed, removed, doubled or put elsewhere. Seeded."""
    rng = random.Random(seed)
    whole = [
        wire.encode(wire.Hello(stream)),
        wire.encode(wire.Append(stream, 1, **_append())),
        wire.encode(wire.Append(stream, 1, "sites", 1, _SITE)),
        wire.encode(wire.Skip(stream, 1, 1, "r")),
        wire.encode(wire.Read(1, "blocks", 0)),
        wire.encode(wire.Sql(1, "SELECT 1")),
    ]
    for _ in range(count):
        frame = bytearray(rng.choice(whole))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            place, length = rng.randrange(len(frame)), rng.randint(1, 8)
            match rng.randrange(4):
                case 0:
                    frame[place] = rng.randrange(256)
                case 1 if length < len(frame):
                    del frame[place : place + length]
                case 2:
                    frame[place:place] = frame[place : place + length]
                case _:
                    frame[place : place + length] = rng.randbytes(length)
            frame = frame or bytearray(b"\x80")
        yield bytes(frame)
