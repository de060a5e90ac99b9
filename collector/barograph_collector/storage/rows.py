"""Checked rows of messages, and their conversion to an Arrow table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_agent.protocol.wire import Wire
from barograph_collector.storage.layout import OFFSET


class Entry(NamedTuple):
    """The checked rows of one message, from the socket to the database.

    rows: 0 where the number of the message alone is stored. columns: as in the message, each bytes or a list of `rows`
    values, or one scalar. frame: an append with the same rows, for the journal. size: estimated memory in bytes.
    refusal: to be sent once the entry is durable. first: the offset of the first row, 0 before it is decided.
    """

    table: str
    rows: int
    columns: Mapping[str, Wire]
    stream: str = ""
    seq: int = 0
    frame: bytes = b""
    size: int = 0
    refusal: wire.Refuse | None = None
    first: int = 0


def numbered(
    entries: Iterable[Entry], head: int, heads: Mapping[str, int]
) -> tuple[dict[str, list[Entry]], int, dict[str, int]]:
    """Offsets for entries, in their order, behind `head`: the entries by table, and the new head of all and of each.

    The one place that decides offsets: the tail of the log gives those that the database will give.
    """
    by_table: dict[str, list[Entry]] = {}
    heads = dict(heads)
    for entry in entries:
        if entry.rows:
            by_table.setdefault(entry.table, []).append(Entry(*entry[:-1], head + 1))
            heads[entry.table] = head = head + entry.rows
    return by_table, head, heads


def to_arrow(table: str, entries: Sequence[Entry]) -> pa.Table:
    """All rows of numbered entries, which are of one table."""
    counts = np.array([entry.rows for entry in entries])
    columns = {OFFSET: pa.array(offsets(entries))}
    for name, kind in TABLES[table].columns.items():
        columns[name] = _texts(entries, name, counts) if kind.is_text else pa.array(numbers(entries, name))
    return pa.table(columns)


def offsets(entries: Sequence[Entry]) -> npt.NDArray[np.int64]:
    """The offsets of all rows of numbered entries: those of an entry count up from its first one."""
    counts = np.array([entry.rows for entry in entries])
    shift = np.array([entry.first for entry in entries]) - np.cumsum(counts) + counts
    return np.asarray(np.arange(counts.sum()) + np.repeat(shift, counts), np.int64)


def numbers(entries: Sequence[Entry], name: str) -> npt.NDArray[Any]:
    """One numeric column of all rows of these entries, which are of one table."""
    kind = TABLES[entries[0].table].columns[name]
    parts: list[Any] = [entry.columns[name] for entry in entries]
    types = set(map(type, parts))
    if types == {bytes}:
        return np.frombuffer(b"".join(parts), kind.dtype)
    if bytes not in types:
        return np.repeat(np.array(parts, kind.dtype), [entry.rows for entry in entries])
    return np.concatenate([wire.spread(part, kind, entry.rows) for part, entry in zip(parts, entries, strict=True)])


def texts(entries: Sequence[Entry], name: str) -> list[str]:
    """One text column of all rows of these entries, which are of one table."""
    kind = TABLES[entries[0].table].columns[name]
    return list(itertools.chain.from_iterable(wire.spread(entry.columns[name], kind, entry.rows) for entry in entries))


def _texts(entries: Sequence[Entry], name: str, counts: npt.NDArray[np.int64]) -> pa.Array:
    parts: list[Any] = [entry.columns[name] for entry in entries]
    if all(isinstance(part, str) for part in parts):
        # Scalars, such as the job of the rows of a stream, become a dictionary array.
        codes = {text: code for code, text in enumerate(dict.fromkeys(parts))}
        indices = np.repeat(np.array([codes[part] for part in parts], np.int32), counts)
        return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(codes), pa.string()))
    return pa.array(texts(entries, name), pa.string())
