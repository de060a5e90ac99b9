"""The one owner of the DuckDB file: appends whole batches, reads pages, remembers how far each stream has come.

Nothing is ever updated or deleted here, so rows lie in the order of their offsets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barograph_agent.tables import TABLES, Kind
from barograph_agent.wire import MAX_BYTES, Column

OFFSET: Final = "offset"
READ_BYTES: Final = MAX_BYTES // 2
"""A page holds at most about this many bytes, but always one row."""
_TEXT_STEP: Final = 64
_STEP_LIMIT: Final = 4096  # rows
_SQL_TYPES: Final = {
    Kind.NAME: "VARCHAR",
    Kind.TEXT: "VARCHAR",
    Kind.F64: "DOUBLE",
    Kind.I64: "BIGINT",
    Kind.U64: "UBIGINT",
}
_LAYOUT: Final = {
    **{t.name: {OFFSET: "BIGINT", **{c: _SQL_TYPES[k] for c, k in t.columns.items()}} for t in TABLES.values()},
    "streams": {"stream": "VARCHAR", "seq": "BIGINT", OFFSET: "BIGINT"},
}


class StoreError(Exception):
    """The database cannot be opened or does not hold what it must. The text names the file and what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Checked rows for one table: each column an array or list of `rows` values."""

    table: str
    rows: int
    columns: Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a read: the table's columns and `offset`, each of `rows` values, and where to read on."""

    columns: dict[str, Column]
    rows: int
    next_offset: int


class Store:
    """The log in one DuckDB file. `commit` and `read` may run in two different threads, each in one only."""

    def __init__(self, path: Path, *, memory_limit: str = "512MB", threads: int = 2) -> None:
        """Open or create the file. Raises StoreError where it is held, unreadable, or of another make."""
        self.path = path
        self._connection = _connect(path, memory_limit, threads)
        try:
            self._prepare()
            self._writer = self._connection.cursor()
            self._reader = self._connection.cursor()
            self.head = self._last_offset()
        except BaseException:
            self._connection.close()
            raise

    def high_water(self) -> dict[str, int]:
        """The highest committed sequence number of every stream there ever was."""
        return dict(self._writer.execute("SELECT stream, max(seq) FROM streams GROUP BY stream").fetchall())

    def commit(self, entries: Sequence[Entry], marks: Mapping[str, int]) -> int:
        """Append all entries and the streams' new high-water marks in one transaction; returns the last offset.

        Offsets follow the order of `entries`. Raises duckdb.Error, after which the store must be closed.
        """
        head = self.head
        by_table: dict[str, tuple[list[Entry], list[npt.NDArray[np.int64]]]] = {}
        for entry in entries:
            same, offsets = by_table.setdefault(entry.table, ([], []))
            same.append(entry)
            offsets.append(np.arange(head + 1, head + 1 + entry.rows, dtype=np.int64))
            head += entry.rows
        self._writer.begin()
        for table, (same, offsets) in by_table.items():
            self._insert(table, _to_arrow(table, same, offsets))
        seqs = np.array(list(marks.values()), dtype=np.int64)
        self._insert("streams", pa.table({"stream": list(marks), "seq": seqs, OFFSET: np.full(len(marks), head)}))
        self._writer.commit()
        self.head = head
        return head

    def read(self, table: str, after: int, limit: int, job: str = "") -> Page:
        """At most `limit` rows with offset > after, in order; fewer where READ_BYTES are reached.

        A negative `after` means the last -after rows. `job` keeps the rows of that job only; its table has such a
        column. `next_offset` is the last row's; without rows it is `after`, or the table's head if that is negative.
        """
        only, bound = (" AND job = ?", [job]) if job else ("", [])
        start = after if after >= 0 else self._before_last(table, -after, only, bound)
        # No ORDER BY: insertion order is offset order and DuckDB preserves it, so a LIMIT ends the scan early. A sort
        # would go through everything behind `start` for every page.
        query = f'SELECT * FROM "{table}" WHERE "{OFFSET}" > ?{only} LIMIT ?'
        found = self._gather(
            query, start, bound, limit, _TEXT_STEP if Kind.TEXT in TABLES[table].columns.values() else limit
        )
        columns: dict[str, Column] = {
            name: column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy()
            for name, column in zip(found.column_names, found.columns, strict=True)
        }
        offsets = np.asarray(columns[OFFSET], dtype=np.int64)
        if np.any(np.diff(offsets, prepend=start) <= 0):
            raise StoreError(f"table {table!r} in {self.path} is not in the order of its offsets; the file is damaged")
        return Page(columns, len(offsets), int(offsets[-1]) if len(offsets) else start)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Another connection to the same database, for one thread and its caller to close."""
        return self._connection.cursor()

    def close(self) -> None:
        """Checkpoint and let go of the file."""
        for connection in (self._reader, self._writer, self._connection):
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _prepare(self) -> None:
        for table, columns in _LAYOUT.items():
            declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
            self._connection.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({declared})')
            query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
            held = self._connection.execute(query, [table]).fetchall()
            if held != list(columns.items()):
                raise StoreError(
                    f"table {table!r} in {self.path} has columns {_listed(held)}, expected {_listed(columns.items())}:"
                    " the file was written by another version"
                )
        self._connection.execute("CHECKPOINT")

    def _last_offset(self) -> int:
        union = " UNION ALL ".join(f'SELECT max("{OFFSET}") AS head FROM "{table}"' for table in _LAYOUT)
        return int(_one(self._connection.execute(f"SELECT coalesce(max(head), 0) FROM ({union})")))

    def _insert(self, table: str, rows: pa.Table) -> None:
        names = ", ".join(f'"{name}"' for name in _LAYOUT[table])
        self._writer.register("incoming", rows)
        stored = _one(self._writer.execute(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM incoming'))
        self._writer.unregister("incoming")
        if stored != rows.num_rows:
            raise StoreError(f"table {table!r} in {self.path} took {stored} rows, expected {rows.num_rows}")

    def _gather(self, query: str, after: int, bound: list[str], limit: int, step: int) -> pa.Table:
        """At most `limit` rows of at most READ_BYTES, `step` rows first and then as many as are likely to fit.

        One query for all would have DuckDB materialise long texts by the gigabyte, to have most of them cut off.
        """
        parts: list[pa.Table] = []
        left = float(READ_BYTES)
        while True:
            asked = min(step, limit)
            found = self._reader.execute(query, [after, *bound, asked]).to_arrow_table()
            filled = np.cumsum(_weights(found))
            fits = int(np.searchsorted(filled, left, side="right"))
            parts.append(found.slice(0, fits if parts else max(fits, 1)))
            limit -= fits
            if fits < asked or limit == 0:
                return pa.concat_tables(parts)
            after = found[OFFSET][-1].as_py()
            left -= filled[-1]
            step = max(1, min(4 * step, _STEP_LIMIT, int(left / filled[-1] * fits)))

    def _before_last(self, table: str, count: int, only: str, bound: list[str]) -> int:
        where = f'SELECT "{OFFSET}" FROM "{table}" WHERE true{only} ORDER BY 1 DESC LIMIT ?'
        query = f'SELECT coalesce((SELECT min("{OFFSET}") - 1 FROM ({where})), max("{OFFSET}"), 0) FROM "{table}"'
        return int(_one(self._reader.execute(query, [*bound, count])))


def _connect(path: Path, memory_limit: str, threads: int) -> duckdb.DuckDBPyConnection:
    # The host is shared and may have no way out: no downloads, no files but this one, no variable taken for a table.
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "threads": threads,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "enable_external_access": False,
    }
    try:
        connection = duckdb.connect(str(path), config=config)
    except duckdb.Error as error:
        reason = str(error).strip().splitlines()[0].removeprefix("IO Error: ")
        if "Could not set lock" in reason:
            holder = reason[reason.rfind("(PID") :].partition(")")[0].lstrip("(") if "(PID" in reason else "PID unknown"
            reason = f"another process has it open ({holder}); stop that one, or choose another state directory"
        raise StoreError(f"cannot open the log {path}: {reason}") from None
    connection.execute("SET python_enable_replacements = false")
    return connection


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _one(result: duckdb.DuckDBPyConnection) -> Any:
    row = result.fetchone()
    assert row is not None  # every caller asks for an aggregate or a row count
    return row[0]


def _to_arrow(table: str, entries: Sequence[Entry], offsets: Sequence[npt.NDArray[np.int64]]) -> pa.Table:
    columns = {OFFSET: pa.array(np.concatenate(offsets))}
    for name, kind in TABLES[table].columns.items():
        parts = [entry.columns[name] for entry in entries]
        columns[name] = (
            pa.array(list(itertools.chain.from_iterable(parts)), pa.string())
            if kind.is_text
            else pa.array(np.concatenate(parts))
        )
    return pa.table(columns)


def _weights(rows: pa.Table) -> npt.NDArray[np.float64]:
    """What each row takes in a message: 8 bytes a number; a string and a header of at most 5."""
    weights = np.zeros(rows.num_rows)
    for column in rows.columns:
        weights += pc.binary_length(column).to_numpy() + 5 if pa.types.is_string(column.type) else 8
    return weights
