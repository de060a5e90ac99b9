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


class CheckedRows(NamedTuple):
    """Checked rows for one table. A column is as in the message: bytes or a list of `rows` values, or one scalar."""

    table: str
    rows: int
    columns: Mapping[str, Wire]


class NumberedRows(NamedTuple):
    """Entries of one table, and the offsets of their first rows."""

    entries: list[CheckedRows]
    firsts: list[int]


def numbered(
    entries: Iterable[CheckedRows], head: int, heads: Mapping[str, int]
) -> tuple[dict[str, NumberedRows], int, dict[str, int]]:
    """Offsets for entries, in their order, behind `head`: the entries by table, and the new head of all and of each.

    The one place that decides offsets: the tail of the log gives those that the database will give.
    """
    by_table: dict[str, NumberedRows] = {}
    heads = dict(heads)
    for entry in entries:
        if not entry.rows:
            continue  # of a message whose number alone is stored
        same = by_table.setdefault(entry.table, NumberedRows([], []))
        same.entries.append(entry)
        same.firsts.append(head + 1)
        head += entry.rows
        heads[entry.table] = head
    return by_table, head, heads


def to_arrow(table: str, entries: Sequence[CheckedRows], first_offsets: Sequence[int]) -> pa.Table:
    """All rows of these entries, which are of one table. The offsets of an entry count up from its first offset."""
    counts = np.array([entry.rows for entry in entries])
    # Per entry: its first offset, minus the number of rows before it.
    shift = np.array(first_offsets) - np.cumsum(counts) + counts
    columns = {OFFSET: pa.array(np.arange(counts.sum()) + np.repeat(shift, counts))}
    for name, kind in TABLES[table].columns.items():
        columns[name] = _texts(entries, name, counts) if kind.is_text else pa.array(numbers(entries, name))
    return pa.table(columns)


def numbers(entries: Sequence[CheckedRows], name: str) -> npt.NDArray[Any]:
    """One numeric column of all rows of these entries, which are of one table."""
    kind = TABLES[entries[0].table].columns[name]
    parts: list[Any] = [entry.columns[name] for entry in entries]
    types = set(map(type, parts))
    if types == {bytes}:
        return np.frombuffer(b"".join(parts), kind.dtype)
    if bytes not in types:
        return np.repeat(np.array(parts, kind.dtype), [entry.rows for entry in entries])
    return np.concatenate([wire.spread(part, kind, entry.rows) for part, entry in zip(parts, entries, strict=True)])


def texts(entries: Sequence[CheckedRows], name: str) -> list[str]:
    """One text column of all rows of these entries, which are of one table."""
    kind = TABLES[entries[0].table].columns[name]
    return list(itertools.chain.from_iterable(wire.spread(entry.columns[name], kind, entry.rows) for entry in entries))


def _texts(entries: Sequence[CheckedRows], name: str, counts: npt.NDArray[np.int64]) -> pa.Array:
    parts: list[Any] = [entry.columns[name] for entry in entries]
    if all(isinstance(part, str) for part in parts):
        # Scalars, such as the job of the rows of a stream, become a dictionary array.
        codes = {text: code for code, text in enumerate(dict.fromkeys(parts))}
        indices = np.repeat(np.array([codes[part] for part in parts], np.int32), counts)
        return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(codes), pa.string()))
    return pa.array(texts(entries, name), pa.string())
