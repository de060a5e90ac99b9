"""Answers to SQL over tables in memory, as a collector gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from barograph_agent.protocol.wire import Result
from barograph_collector.storage.layout import LOG_COLUMNS

NO_DAYS = pa.table({
    "day": pa.array([], pa.int64()), "first_offset": pa.array([], pa.int64()), "archived": pa.array([], pa.bool_()),
})  # fmt: skip
"""Of the table `partitions`, where no day is told."""
_ENGINE = duckdb.connect(config={"threads": 1})
# What this pushes into a scan of Arrow may be a number that pyarrow takes for one too large.
_ENGINE.execute("SET disabled_optimizers = 'join_filter_pushdown'")


def answered(text: str, tables: Mapping[str, pa.Table]) -> Result:
    """The rows of a query over these tables, and those of the log that are empty."""
    with _ENGINE.cursor() as cursor:
        for name in (*LOG_COLUMNS, "partitions"):
            if name in text and name not in tables:
                columns = ", ".join(f'NULL::{kind} AS "{one}"' for one, kind in LOG_COLUMNS.get(name, {}).items())
                empty = cursor.sql(f"SELECT {columns} LIMIT 0").to_arrow_table() if columns else NO_DAYS
                cursor.register(name, empty)
            elif name in text:
                cursor.register(name, tables[name])
        found = cursor.sql(text).to_arrow_table()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    return Result(1, sink.getvalue().to_pybytes(), found.num_rows, more=False)


def arrow(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with all columns of a table: those that they lack are empty, or 0."""
    types = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "UBIGINT": pa.uint64(), "DOUBLE": pa.float64()}
    kinds = {name: types[kind] for name, kind in LOG_COLUMNS[table].items()}
    return pa.table({
        name: pa.array([row.get(name, "" if kind == pa.string() else 0) for row in rows], kind)
        for name, kind in kinds.items()
    })  # fmt: skip
