"""Pages of the log: rows after an offset, as many as fit into a message."""

from __future__ import annotations

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
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET, quoted
from barograph_collector.storage.partitions import Partitions

READ_BYTES: Final = MAX_BYTES // 2
"""The approximate size limit of a page, which holds one row at least."""
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
        # The last day's page is empty where no day has rows.
        pages = (self._gather(name, table, start, limit, job) for name in self._partitions.after(table, start))
        for found in pages:
            if found.num_rows:
                break
        columns: dict[str, Column] = {
            name: column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy()
            for name, column in zip(found.column_names, found.columns, strict=True)
        }
        offsets = np.asarray(columns[OFFSET], dtype=np.int64)
        if np.any(np.diff(offsets, prepend=start) <= 0):
            raise StoreError(f"table {table!r} in {self._path} is not in the order of its offsets; the file is damaged")
        return LogPage(columns, len(offsets), int(offsets[-1]) if len(offsets) else start)

    def _gather(self, name: str, table: str, after: int, limit: int, job: str) -> pa.Table:
        """At most `limit` rows and READ_BYTES, by queries whose limits are estimated from the sizes of earlier rows.

        One query for `limit` rows could materialise gigabytes of text, most of which would not fit.
        """
        condition, bound = _of_job(job)
        # No ORDER BY: insertion order is offset order and DuckDB preserves it, so a LIMIT ends the scan early. A sort
        # would scan everything beyond `after` for every page.
        query = f'SELECT {quoted(LOG_COLUMNS[table])} FROM "{name}" WHERE "{OFFSET}" > ? AND {condition} LIMIT ?'
        step = _TEXT_STEP if Kind.TEXT in TABLES[table].columns.values() else limit
        parts: list[pa.Table] = []
        left = float(READ_BYTES)
        while True:
            asked = min(step, limit)
            found = self.connection.execute(query, [after, *bound, asked]).to_arrow_table()
            filled = np.cumsum(_weights(found))
            fits = int(np.searchsorted(filled, left, side="right"))
            parts.append(found.slice(0, fits if parts else max(fits, 1)))
            limit -= fits
            if fits < asked or limit == 0:
                return pa.concat_tables(parts)
            after = found[OFFSET][-1].as_py()
            left -= filled[-1]
            step = max(1, min(4 * step, _STEP_LIMIT, int(left / filled[-1] * fits)))

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
