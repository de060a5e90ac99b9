"""Files of rows: Parquet, CSV or JSON Lines by the suffix of their name, written atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from barograph_agent.system.disk import DISK

SUFFIXES: Final = (".parquet", ".csv", ".jsonl")


def flat(rows: pa.Table) -> pa.Table:
    """Rows for CSV: lists and structs as JSON."""
    columns = [
        pa.array([msgspec.json.encode(value, enc_hook=str).decode() for value in column.to_pylist()], pa.string())
        if pa.types.is_nested(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, rows.column_names)


def json_lines(rows: pa.Table) -> Iterator[bytes]:
    """Rows as JSON objects. Values without a JSON equivalent, such as nan, are null."""
    return (msgspec.json.encode(row, enc_hook=str) for row in rows.to_pylist())


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A temporary file, which takes the place of `path` at the end; after an error `path` is as it was."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            DISK.sync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write(path: Path, tables: Iterable[pa.Table]) -> int:
    """Replace a file by the rows of tables of the same columns; returns their number.

    Raises OSError and pa.ArrowException.
    """
    rows = 0
    with replaced(path) as file, contextlib.ExitStack() as stack:
        append: Callable[[pa.Table], object] | None = None
        for table in tables:
            page = flat(table) if path.suffix == ".csv" else table
            append = append or _appender(path.suffix, file, page.schema, stack)
            append(page)
            rows += page.num_rows
    return rows


def _appender(
    suffix: str, file: BinaryIO, schema: pa.Schema, stack: contextlib.ExitStack
) -> Callable[[pa.Table], object]:
    if suffix == ".jsonl":
        return lambda table: file.writelines(line + b"\n" for line in json_lines(table))
    if suffix == ".csv":
        writer = stack.enter_context(pa.csv.CSVWriter(file, schema))
    else:
        writer = stack.enter_context(pa.parquet.ParquetWriter(file, schema, compression="zstd"))
    append: Callable[[pa.Table], object] = writer.write_table
    return append
