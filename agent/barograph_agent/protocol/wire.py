"""The log protocol, version 1: messages between a client and the collector over DEALER/ROUTER.

Every ZeroMQ message is one frame: a msgpack map with a `type` field. From a client:

    hello   stream version credential number           -> welcome, or refuse
    append  stream seq table rows columns              -> ack once durable, or refuse
    skip    stream seq rows reason                     -> ack; the producer has dropped everything up to seq
    read    request table after limit job tables seconds  -> rows
    sql     request query limit seconds                -> result

From the collector:

    welcome stream acked credit version number            acked = highest durable seq of the stream, 0 for none
    ack     stream seq credit                             cumulative: everything up to seq is durable
    refuse  stream seq reason detail                      see Refuse
    rows    request table rows columns next_offset error
    result  request stream rows more error                rows as an Arrow IPC stream

A stream is the sequence of one producer's messages, numbered 1, 2, 3 ... without gaps. A producer may have at most
`credit` unacknowledged messages. Resending is always safe: the collector ignores messages that it has. The first row of
a job is in `jobs`, its last in `runs`; there are no separate messages for the start and the end of a job.

A column is encoded as the raw little-endian bytes of an array of `rows` values (numeric kinds of tables.Kind), as a
list of `rows` strings (text kinds), or as one scalar that applies to every row.

Compatibility. Within a version, fields with a default may be added at the end of a message: decoders skip unknown
fields and use the default of missing ones. Columns with a default may be added at the end of a table, in the collector
first: a missing column has the default, and readers skip unknown columns. A collector refuses an append with an unknown
column as `invalid`: measurements are not dropped silently. New reasons need no new version; every other change does. In
all versions a hello has `type`, `stream` and `version`, and a refuse the four fields above, so that a client of any
version understands the refusal `version`. A message of an unknown type is counted and not answered.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from barograph_agent.protocol.tables import IDENTIFIER, TABLES, TEXT_LIMIT, Domain, Json, Kind, Table

VERSION: Final = 1
MAX_ROWS: Final = 65536
MAX_SQL_ROWS: Final = 100_000
MAX_SQL_SECONDS: Final = 60.0
"""Limits on the answer to a query; one that asks for more gets these."""
MAX_BYTES: Final = 16 * 2**20
"""Limit on a frame; ZeroMQ closes the connection of a larger one before reading it."""
MAX_APPEND_BYTES: Final = 8 * 2**20
"""Limit on an append; a larger one is refused."""

MAX_EXPLAINED: Final = 1000
"""Bytes of a column of a wrong type of which it is said what it is."""
MAX_COLUMNS: Final = 64
"""Of an append, and tables of a round: far more than there are."""

WITHHELD: Final = ("disk-full",)
"""Reasons for which the collector takes no rows of anybody, until its disk has room."""
DROPS: Final = ("ring-full", "spool-cap", "memory-cap", "forgotten", "other")
"""Why rows are dropped by their producer."""
CONSUMED: Final = ("invalid", "forbidden", "oversized")
"""Reasons that consume the message without storing rows; after any other the producer sends hello and resends."""

Wire: TypeAlias = bytes | list[str] | str | int | float
Column: TypeAlias = npt.NDArray[Any] | list[str]


class Hello(msgspec.Struct, tag="hello", tag_field="type", frozen=True):
    """Opens a stream, or reopens it after a timeout.

    `credential` authenticates the producer if the collector requires it: see `deliver.credential`. `number` is chosen
    by the producer and repeated in the welcome, so that a late welcome is not mistaken for the answer to a later hello.
    """

    stream: str
    version: int = VERSION
    credential: str = ""
    number: int = 0


class Append(msgspec.Struct, tag="append", tag_field="type", frozen=True):
    """Rows for one table."""

    stream: str
    seq: int
    table: str
    rows: int
    columns: dict[str, Any]  # of Wire, which the decoder cannot check: unpack does


class Skip(msgspec.Struct, tag="skip", tag_field="type", frozen=True, omit_defaults=True):
    """The producer has dropped all messages beyond `after`, up to and including seq: `rows` rows, for `reason`.

    Refused if `after` is not the last message that the collector has: then some of the rows are stored. -1: unknown.
    `reason` is one of DROPS, any other counts as `other`.
    """

    stream: str
    seq: int
    rows: int
    reason: str
    after: int = -1


class Read(msgspec.Struct, tag="read", tag_field="type", frozen=True):
    """Requests at most `limit` rows with offset > `after`; a negative `after` means the last -after rows.

    A non-empty `job` selects that job's rows (tables with a job column).
    """

    request: int
    table: str
    after: int
    limit: int = 10_000
    job: str = ""
    tables: Annotated[dict[str, int], msgspec.Meta(max_length=MAX_COLUMNS)] | None = None
    """For a round: the offsets of several tables, in place of `table`, `after` and `job`, which are empty or 0. The
    answer has the rows of these tables beyond their offsets, all of them up to one offset."""
    seconds: float = 0.0
    """How long a round is waited for, while none of its tables has a row beyond its offset; and the last row of a job
    in `scores` (`after` -1), while it is not final. The `offset` of a final one is 0 if it is not stored yet."""


class Sql(msgspec.Struct, tag="sql", tag_field="type", frozen=True):
    """Requests at most `limit` rows of one SELECT, within `seconds`: MAX_SQL_ROWS and MAX_SQL_SECONDS at most."""

    request: int
    query: str
    limit: int = 1000
    seconds: float = 10.0


class Welcome(msgspec.Struct, tag="welcome", tag_field="type", frozen=True):
    """Answer to the hello with this number."""

    stream: str
    acked: int
    credit: int
    version: int = VERSION
    number: int = 0


class Ack(msgspec.Struct, tag="ack", tag_field="type", frozen=True):
    """All messages of the stream up to seq are committed."""

    stream: str
    seq: int
    credit: int


class Refuse(msgspec.Struct, tag="refuse", tag_field="type", frozen=True):
    """The message with this seq, or the hello if seq is 0, was refused; `detail` states why and what was expected.

    Reasons, to which later versions may add: `version` (another protocol), `gap` (not the next number),
    `unknown-stream` (hello first), `rate` (too fast); those in WITHHELD; `key`, `role`, `credential`, `replayed` (not
    admitted); and those in CONSUMED: `invalid` (not what its table expects), `forbidden` (not allowed for this
    producer), `oversized`.
    """

    stream: str
    seq: int
    reason: str
    detail: str


class Rows(msgspec.Struct, tag="rows", tag_field="type", frozen=True):
    """Answer to read. Columns are those of the table and `offset`; `error` is non-empty if the read failed."""

    request: int
    table: str
    rows: int
    columns: dict[str, Any]  # of Wire, which the decoder cannot check: unpack does
    """Of a round: such columns by table, for the tables that have rows."""
    next_offset: int
    """The offset to continue after. Of a round: no further row of its tables has an offset up to it."""
    error: str = ""
    note: str = ""
    """What the rows lack, such as days that could not be read."""


class Result(msgspec.Struct, tag="result", tag_field="type", frozen=True):
    """Answer to sql: `rows` rows as an Arrow IPC stream; `more`: whether the limit truncated the result.

    If the query failed, `error` is non-empty and there is no stream. `note`: what it was computed without, such as days
    that could not be read.
    """

    request: int
    stream: bytes
    rows: int
    more: bool
    error: str = ""
    note: str = ""


class Received(Append, tag="append", tag_field="type", frozen=True):
    """An append whose columns are not decoded, so that it costs nothing to refuse it. `check` decodes them."""

    columns: Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=MAX_COLUMNS)]


class AnyHello(msgspec.Struct, tag="hello", tag_field="type", frozen=True):
    """The fields of a hello in every version."""

    stream: str
    version: int


FromClient: TypeAlias = Hello | Append | Skip | Read | Sql
FromCollector: TypeAlias = Welcome | Ack | Refuse | Rows | Result

encode = msgspec.msgpack.Encoder().encode
decode_from_client = msgspec.msgpack.Decoder(FromClient).decode
decode_received = msgspec.msgpack.Decoder(Hello | Received | Skip | Read | Sql).decode
decode_any_hello = msgspec.msgpack.Decoder(AnyHello).decode
decode_from_collector = msgspec.msgpack.Decoder(FromCollector).decode


_decode_text = msgspec.msgpack.Decoder(Annotated[list[str], msgspec.Meta(max_length=MAX_ROWS)] | str).decode
_decode_numbers = msgspec.msgpack.Decoder(bytes | int | float).decode

# Looked up once instead of for every column.
_NAME: Final = Kind.NAME
_F64: Final = Kind.F64
_LEAST: Final = {Kind.I64: -(2**63), Kind.U64: 0}
_MOST: Final = {Kind.I64: 2**63 - 1, Kind.U64: 2**64 - 1}

READ_KINDS: Final[dict[str, dict[str, Kind]]] = {
    name: {"log_offset": Kind.I64, **table.columns} for name, table in TABLES.items()
}
"""The columns of a rows message by table: the row's offset, then those of the table."""


class Invalid(ValueError):
    """A message that decodes but does not match its table. The text names column, value and what was expected."""


def pack(values: Mapping[str, npt.ArrayLike | Sequence[str]], columns: Mapping[str, Kind]) -> dict[str, Wire]:
    """Encode arrays, lists of strings and scalars as columns of a message."""
    packed: dict[str, Wire] = {}
    for name, kind in columns.items():
        value = values[name]
        if kind.is_text:
            packed[name] = value if isinstance(value, str) else list(value)  # type: ignore[arg-type]
        else:
            packed[name] = np.ascontiguousarray(value, dtype=kind.dtype).tobytes() if np.ndim(value) else _scalar(value)
    return packed


def _scalar(value: Any) -> int | float:
    number: int | float = value.item() if isinstance(value, np.generic) else value
    return number


def append(stream: str, seq: int, table: str, rows: int, values: Mapping[str, npt.ArrayLike | Sequence[str]]) -> Append:
    """Build an append of `rows` rows; values may be arrays or lists of that length, or scalars."""
    return Append(stream, seq, table, rows, pack(values, TABLES[table].columns))


def unpack(
    columns: Mapping[str, Wire], kinds: Mapping[str, Kind], rows: int, *, strict: bool = True
) -> dict[str, Column]:
    """Check columns against their kinds and return arrays and lists of `rows` values. Raises Invalid.

    `strict=False` is for messages from a collector, which has checked texts before storing them and may be newer:
    unknown columns are omitted.
    """
    return {
        name: spread(value, kinds[name], rows) for name, value in check(columns, kinds, rows, strict=strict).items()
    }


def check(
    columns: Mapping[str, Wire | msgspec.Raw],
    kinds: Mapping[str, Kind],
    rows: int,
    *,
    defaults: Mapping[str, Wire] = MappingProxyType({}),
    strict: bool = True,
) -> dict[str, Wire]:
    """Check columns like `unpack` but leave them encoded, for `spread`: the collector decodes many messages at once.

    A column missing in the message of an older producer has its default. Raises Invalid.
    """
    if strict and (unknown := columns.keys() - kinds.keys()):
        raise Invalid(f"unknown column {min(unknown)!r}, expected one of {', '.join(kinds)}")
    out: dict[str, Wire] = {}
    for name, kind in kinds.items():
        try:
            value = columns[name]
        except KeyError:
            if name not in defaults:
                raise Invalid(f"column {name!r} is missing, expected {kind.text}") from None
            value = defaults[name]
        if isinstance(value, msgspec.Raw):
            value = _decoded(name, value, kind)
        if kind.is_text:
            _check_text(name, value, kind, rows, strict)
        else:
            _check_numbers(name, value, kind, rows)
        out[name] = value
    return out


def _decoded(name: str, value: msgspec.Raw, kind: Kind) -> Wire:
    """A column. Whatever an array has that is no text ends its decoding; of a small one the checks say what it is."""
    decoders: list[Callable[[msgspec.Raw], Any]] = [_decode_text if kind.is_text else _decode_numbers]
    if len(value) <= MAX_EXPLAINED:
        decoders.append(msgspec.msgpack.decode)
    for decode in decoders:
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            decoded: Wire = decode(value)
            return decoded
    raise Invalid(f"column {name!r} is no column, expected {kind.text}")


def spread(value: Wire, kind: Kind, rows: int) -> Column:
    """A checked column as `rows` values: an array of its kind, or a list of strings."""
    if isinstance(value, bytes):
        return np.frombuffer(value, kind.dtype)
    if isinstance(value, list):
        return value
    return [value] * rows if isinstance(value, str) else np.full(rows, value, kind.dtype)


def _check_numbers(name: str, value: Wire, kind: Kind, rows: int) -> None:
    if isinstance(value, bytes):
        if len(value) != rows * kind.dtype.itemsize:
            size = kind.dtype.itemsize
            raise Invalid(f"column {name!r} has {len(value)} bytes, expected {rows} rows of {size} bytes")
    elif type(value) is not int and (kind is not _F64 or type(value) is not float):
        raise Invalid(f"column {name!r} is {type(value).__name__}, expected {kind.text}")
    elif kind is not _F64 and not _LEAST[kind] <= value <= _MOST[kind]:
        raise Invalid(f"column {name!r} is {value}, expected {kind.text}")


def _check_text(name: str, value: Wire, kind: Kind, rows: int, strict: bool) -> None:
    if isinstance(value, str):
        distinct: Iterable[str] = (value,)
    elif isinstance(value, list):
        if len(value) != rows:
            raise Invalid(f"column {name!r} has {len(value)} values, expected {rows}")
        if foreign := set(map(type, value)) - {str}:
            raise Invalid(f"column {name!r} has a value of type {foreign.pop().__name__}, expected {kind.text}")
        distinct = set(value)
    else:
        raise Invalid(f"column {name!r} is {type(value).__name__}, expected {kind.text}")
    if strict:
        for text in distinct:
            if kind is _NAME and not IDENTIFIER.fullmatch(text):
                raise Invalid(f"column {name!r} is {text[:140]!r}, expected {kind.text}")
            if len(text) > TEXT_LIMIT:
                raise Invalid(f"column {name!r} has {len(text)} characters, expected {kind.text}")


def check_values(columns: Mapping[str, Wire], table: Table) -> None:
    """Check that checked columns have values of their domains, and JSON. Raises Invalid."""
    for name, json in table.json.items():
        value = columns[name]
        for text in {value} if isinstance(value, str) else set(cast("list[str]", value)):
            _check_json(name, text, json)
    for domain, names in _DOMAINS[table.name]:
        arrays = []
        for name in names:
            value = columns[name]
            if isinstance(value, bytes):
                arrays.append(value)
            elif not (domain.low <= value <= domain.high or (domain.unknown and math.isnan(value))):  # type: ignore
                raise Invalid(f"column {name!r} is {value}, expected {domain}")
        if arrays and not _fits(b"".join(arrays), domain):
            for name in names:
                if isinstance(value := columns[name], bytes):
                    _check_each(name, np.frombuffer(value, domain.kind.dtype), domain)


def _check_json(name: str, text: str, json: Json) -> None:
    try:
        if text:
            _JSON[json](text)
    except (msgspec.MsgspecError, RecursionError):
        raise Invalid(f"column {name!r} is {text[:140]!r}, expected {json}") from None


def _domains(table: Table) -> list[tuple[Domain, list[str]]]:
    """Each domain with the columns that have it: they are checked together."""
    names: dict[Domain, list[str]] = {}
    for name, domain in table.domains.items():
        names.setdefault(domain, []).append(name)
    return list(names.items())


_JSON: Final = {json: msgspec.json.Decoder(json.type).decode for json in Json}
_DOMAINS: Final = {name: _domains(table) for name, table in TABLES.items()}


def _fits(data: bytes, domain: Domain) -> bool:
    """Whether all numbers are in the domain: True is certain, False may be wrong.

    The bits of floats from +0.0 on are ordered like the floats; those of negative floats and of NaN are larger.
    """
    if domain.kind is _F64:
        if domain.low or domain.unknown:
            return False
        return int(np.frombuffer(data, "<u8").max()) <= int(np.float64(domain.high).view("<u8"))
    shifted = np.frombuffer(data, "<i8") - int(domain.low) if domain.low else np.frombuffer(data, "<i8")
    return int(shifted.view("<u8").max()) <= int(domain.high - domain.low)


def _check_each(name: str, values: npt.NDArray[Any], domain: Domain) -> None:
    inside = (values >= domain.low) & (values <= domain.high)
    if domain.unknown:
        inside |= np.isnan(values)
    if not inside.all():
        row = int(np.argmin(inside))
        raise Invalid(f"column {name!r} is {values[row]} in row {row}, expected {domain}")


def table_named(name: str) -> Table:
    """The table of this name. Raises Invalid for one that does not exist."""
    table = TABLES.get(name)
    if table is None:
        raise Invalid(f"unknown table {name[:140]!r}, expected one of {', '.join(TABLES)}")
    return table
