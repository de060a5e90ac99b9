"""The rows of one table that meet a condition, found by the collector: what is left out is neither sent nor decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import LogReader, RowBatch

PAGE_BYTES: Final = 4 * 2**20
"""Of a page, about: half of what an answer may have. A page has one row at least."""
PAGE_ROWS: Final = 50_000
SECONDS: Final = 60.0
"""Limit of one query: others may use the machine."""


def ask(reader: LogReader, text: str, limit: int = 1, seconds: float = SECONDS) -> tuple[pa.Table, str]:
    """The rows of a query, and which days they lack. Raises LogUnavailable and ReadRefused."""
    answer = reader.query(text, limit, seconds)
    return pa.ipc.open_stream(answer.stream).read_all(), answer.note


def numbers_as_rows(numbers: Iterable[float], kind: str) -> str:
    """Finite numbers as a column of this kind in SQL. One constant is parsed sooner than many.

    >>> print(numbers_as_rows([1, 2], "BIGINT"))
    unnest('[1, 2]'::BIGINT[])
    """
    return f"unnest('{list(numbers)}'::{kind}[])"


def select(
    reader: LogReader, table: str, condition: str, names: Sequence[str] = (), seconds: float = SECONDS
) -> Iterator[RowBatch]:
    """Pages of the rows of a table that meet a condition, which is SQL, in the order of their offsets.

    names: columns to read besides the offset; all by default. seconds: limit of one query. Raises LogUnavailable and
    ReadRefused.
    """
    kinds = {name: kind for name, kind in wire.READ_KINDS[table].items() if not names or name in (*names, "log_offset")}
    columns = ", ".join(f'"{name}"' for name in kinds)
    bytes_of = " + ".join(f'strlen("{name}")' if kind.is_text else "8" for name, kind in kinds.items())
    after, more = -1, True
    while more:
        sizes, _ = ask(
            reader,
            f'SELECT log_offset, {bytes_of} AS bytes FROM "{table}" WHERE log_offset > {after} AND ({condition})'
            f" ORDER BY log_offset LIMIT {PAGE_ROWS}",
            PAGE_ROWS,
            seconds,
        )
        offsets, filled = sizes["log_offset"].to_numpy(), np.cumsum(sizes["bytes"].to_numpy())
        more, first = len(offsets) == PAGE_ROWS, 0
        while first < len(offsets):
            before = filled[first - 1] if first else 0
            stop = max(int(np.searchsorted(filled, before + PAGE_BYTES, side="right")), first + 1)
            after = int(offsets[stop - 1])
            # The condition is not asked again.
            listed = numbers_as_rows(offsets[first:stop].tolist(), "BIGINT")
            within = f"log_offset BETWEEN {offsets[first]} AND {after} AND log_offset IN (SELECT {listed})"
            text = f'SELECT {columns} FROM "{table}" WHERE {within} ORDER BY log_offset'
            rows, _ = ask(reader, text, PAGE_ROWS, seconds)
            yield RowBatch(
                {
                    name: column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy()
                    for name, column in zip(rows.column_names, rows.columns, strict=True)
                },
                rows.num_rows,
                after,
            )
            first = stop
