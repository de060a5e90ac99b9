"""Pages of the log: rows after an offset, as many as fit into a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barograph_agent.protocol.tables import TABLES, Kind
from barograph_agent.protocol.wire import MAX_BYTES, Column
from barograph_collector.storage.connection import StoreError
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OFFSET, quoted
from barograph_collector.storage.partitions import Partitions

READ_BYTES: Final = MAX_BYTES // 2
"""The approximate size limit of a page, which holds one row at least."""
_BEYOND: Final = 2**63 - 1  # any offset
_TEXT_STEP: Final = 64
_STEP_LIMIT: Final = 4096  # rows


@dataclass(frozen=True, slots=True)
class LogPage:
    """The table's columns and `offset`, each of `rows` values, and the offset to continue after."""

    columns: dict[str, Column]
    rows: int
    next_offset: int


class PageReader:
    """Reads pages of the database at `path` over its own connection; for one thread."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection, partitions: Partitions) -> None:
        self._path = path
        self.connection = connection
        self._partitions = partitions

    def read(self, table: str, after: int, limit: int, job: str = "") -> LogPage:
        """At most `limit` rows with offset > after, in order; fewer at READ_BYTES or at the end of a day.

        A negative `after` means the last -after rows. `job` selects rows of one job, in a table with such a column.
        `next_offset` is that of the last row; without rows it is `after`, or the table's head for a negative `after`.
        Raises duckdb.Error, and StoreError for a damaged file.
        """
        start = after if after >= 0 else self._before_last(table, -after, job)
        found, _ = self._first_rows(table, start, limit, job=job)
        columns = self._columns(table, start, found)
        return LogPage(columns, found.num_rows, int(columns[OFFSET][-1]) if found.num_rows else start)

    def read_round(self, offsets: Mapping[str, int], upto: int, limit: int) -> tuple[int, dict[str, dict[str, Column]]]:
        """Rows of several tables, of each those beyond its offset: all up to one offset, which is returned with them.

        It is `upto`, or a lower one where a table has more than `limit` rows, or more bytes than its share of
        READ_BYTES. A table without rows is left out.
        """
        found: dict[str, pa.Table] = {}
        # Where the rows of a table are cut, those of the others end too. So the table that is furthest behind is first,
        # and of several the one that grows fastest.
        for table in sorted(offsets, key=lambda name: (offsets[name], name not in DAILY)):
            if offsets[table] < upto:
                found[table], cut = self._first_rows(
                    table, offsets[table], limit, upto=upto, room=READ_BYTES / len(offsets)
                )
                upto = found[table][OFFSET][-1].as_py() if cut else upto
        whole = {table: rows.filter(pc.less_equal(rows[OFFSET], upto)) for table, rows in found.items()}
        return upto, {t: self._columns(t, offsets[t], rows) for t, rows in whole.items() if rows.num_rows}

    def _first_rows(
        self, table: str, after: int, limit: int, *, job: str = "", upto: int = _BEYOND, room: float = READ_BYTES
    ) -> tuple[pa.Table, bool]:
        """Rows of the first day that has any beyond `after`, none otherwise; and whether there may be more."""
        names = self._partitions.after(table, after, upto) or self._partitions.after(table, after)
        for name in names:
            found, cut = self._gather(name, table, after, limit, job, upto, room)
            if found.num_rows:
                break
        return found, cut or name != names[-1]

    def _gather(
        self, name: str, table: str, after: int, limit: int, job: str, upto: int, room: float
    ) -> tuple[pa.Table, bool]:
        """At most `limit` rows and `room` bytes, by queries whose limits are estimated from the sizes of earlier rows.

        Also says whether there may be more. One query for `limit` rows could materialise gigabytes of text, most of
        which would not fit.
        """
        condition, bound = _of_job(job)
        # No ORDER BY: insertion order is offset order and DuckDB preserves it, so a LIMIT ends the scan early. A sort
        # would scan everything beyond `after` for every page.
        rows = f'"{OFFSET}" > ? AND "{OFFSET}" <= ? AND {condition}'
        query = f'SELECT {quoted(LOG_COLUMNS[table])} FROM "{name}" WHERE {rows} LIMIT ?'
        step = _TEXT_STEP if Kind.TEXT in TABLES[table].columns.values() else limit
        parts: list[pa.Table] = []
        while True:
            asked = min(step, limit)
            found = self.connection.execute(query, [after, upto, *bound, asked]).to_arrow_table()
            filled = np.cumsum(_weights(found))
            fits = int(np.searchsorted(filled, room, side="right"))
            parts.append(found.slice(0, fits if parts else max(fits, 1)))
            limit -= fits
            if fits < asked or limit == 0:
                return pa.concat_tables(parts), fits < found.num_rows or limit == 0
            after = found[OFFSET][-1].as_py()
            room -= filled[-1]
            step = max(1, min(4 * step, _STEP_LIMIT, int(room / filled[-1] * fits)))

    def _columns(self, table: str, after: int, rows: pa.Table) -> dict[str, Column]:
        """Rows as arrays and lists. Raises StoreError."""
        columns: dict[str, Column] = {
            name: column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy()
            for name, column in zip(rows.column_names, rows.columns, strict=True)
        }
        if np.any(np.diff(np.asarray(columns[OFFSET], np.int64), prepend=after) <= 0):
            raise StoreError(f"table {table!r} in {self._path} is not in the order of its offsets; the file is damaged")
        return columns

    def _before_last(self, table: str, count: int, job: str) -> int:
        """The offset before the last `count` rows."""
        condition, bound = _of_job(job)
        first: int | None = None
        head = 0
        for name in reversed(self._partitions.after(table, 0)):
            newest = f'SELECT "{OFFSET}" FROM "{name}" WHERE {condition} ORDER BY 1 DESC LIMIT ?'
            query = f'SELECT count(*), min("{OFFSET}"), (SELECT max("{OFFSET}") FROM "{name}") FROM ({newest})'
            ((found, oldest, last),) = self.connection.execute(query, [*bound, count]).fetchall()
            first = oldest if found else first
            head = max(head, last or 0)
            count -= found
            if count == 0:
                break
        return head if first is None else first - 1


def _of_job(job: str) -> tuple[str, list[str]]:
    """The condition on rows, and its parameters."""
    return ("job = ?", [job]) if job else ("true", [])


def _weights(rows: pa.Table) -> npt.NDArray[np.float64]:
    """Bytes of each row in a message: 8 for a number; for a string its length and a header of at most 5."""
    weights = np.zeros(rows.num_rows)
    for column in rows.columns:
        weights += pc.binary_length(column).to_numpy() + 5 if pa.types.is_string(column.type) else 8
    return weights
