"""Rows on their way to the database: checked columns message by message, put together into one Arrow table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barograph_agent import wire
from barograph_agent.tables import TABLES, Kind
from barograph_agent.wire import Column
from barograph_collector.layout import OFFSET


@dataclass(frozen=True, slots=True)
class Entry:
    """Checked rows for one table: each column an array or list of `rows` values, or one value that holds for all."""

    table: str
    rows: int
    columns: Mapping[str, Column | str]


def to_arrow(table: str, entries: Sequence[Entry], first_offsets: Sequence[int]) -> pa.Table:
    """All rows of these entries for one table; those of an entry have offsets on from its first one."""
    counts = np.array([entry.rows for entry in entries])
    # Per entry: where its offsets begin, less how many rows stand before it.
    shift = np.array(first_offsets) - np.cumsum(counts) + counts
    columns = {OFFSET: pa.array(np.arange(counts.sum()) + np.repeat(shift, counts))}
    for name, kind in TABLES[table].columns.items():
        parts = [entry.columns[name] for entry in entries]
        columns[name] = _texts(parts, counts) if kind.is_text else _numbers(parts, counts, kind)
    return pa.table(columns)


def _numbers(parts: Sequence[Any], counts: npt.NDArray[np.int64], kind: Kind) -> pa.Array:
    if all(part.ndim == 0 for part in parts):
        return pa.array(np.repeat(np.array(parts, kind.dtype), counts))
    return pa.array(np.concatenate([wire.spread(part, n) for part, n in zip(parts, counts, strict=True)]))


def _texts(parts: Sequence[Any], counts: npt.NDArray[np.int64]) -> pa.Array:
    if all(isinstance(part, str) for part in parts):
        # One stream's rows are of one job: a message says so once, and so does the batch.
        codes = {text: code for code, text in enumerate(dict.fromkeys(parts))}
        indices = np.repeat(np.array([codes[part] for part in parts], np.int32), counts)
        return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(codes), pa.string()))
    values = (wire.spread(part, n) for part, n in zip(parts, counts, strict=True))
    return pa.array(list(itertools.chain.from_iterable(values)), pa.string())
