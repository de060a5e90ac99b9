"""Pages of the log: rows after an offset, as many as fit into a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barograph_agent.protocol.tables import TABLES, Kind
from barograph_agent.protocol.wire import MAX_BYTES, Column
from barograph_collector.storage.connection import StoreError
from barograph_collector.storage.days.archive import SealedFile, unreadable
from barograph_collector.storage.days.partitions import DaySource, Partitions
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OFFSET, quoted

READ_BYTES: Final = MAX_BYTES // 2
"""The approximate size limit of a page, which holds one row at least."""
_BEYOND: Final = 2**63 - 1  # any offset
WINDOW_ROWS: Final = 2**18
"""Read of a sealed file at once, which is sorted by job: each read scans the offsets of the whole file."""
_TEXT_STEP: Final = 64
_STEP_LIMIT: Final = 4096  # rows
_ARROW: Final = {
    "VARCHAR": pa.string(), "BIGINT": pa.int64(), "UBIGINT": pa.uint64(), "DOUBLE": pa.float64(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogPage:
    """The table's columns and `offset`, each of `rows` values, and the offset to continue after.

    note: which days could not be read, and why; empty if all could. more: whether the database may have more.
    """

    columns: dict[str, Column]
    rows: int
    next_offset: int
    note: str = ""
    more: bool = False

    def followed(self, tail: Mapping[str, Column], limit: int) -> LogPage:
        """With the first rows of a tail behind it, which are of the same table and job, up to `limit` in all."""
        first = int(np.searchsorted(np.asarray(tail[OFFSET]), self.next_offset, side="right"))
        chosen = {name: tail[name][first : first + limit - self.rows] for name in self.columns}
        if self.more or not len(chosen[OFFSET]):
            return self
        columns: dict[str, Column] = {
            name: [*values, *chosen[name]] if isinstance(values, list) else np.concatenate([values, chosen[name]])
            for name, values in self.columns.items()
        }
        return LogPage(columns, len(columns[OFFSET]), int(columns[OFFSET][-1]), self.note)


class _Window(NamedTuple):
    """All rows of a table beyond one offset up to another one, which are in one sealed file, sorted."""

    after: int
    upto: int
    rows: pa.Table


class PageReader:
    """Reads pages of the database at `path` over its own connection; for one thread."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection, partitions: Partitions) -> None:
        self._path = path
        self.connection = connection
        self._partitions = partitions
        # One for each table: a round reads several in turn.
        self._windows: dict[str, _Window] = {}

    def read(self, table: str, after: int, limit: int, job: str = "") -> LogPage:
        """At most `limit` rows with offset > after, in order; fewer at READ_BYTES or at the end of a day.

        A negative `after` means the last -after rows. `job` selects rows of one job, in a table with such a column.
        `next_offset` is that of the last row; without rows it is `after`, or the table's head for a negative `after`.
        Days in the lake that cannot be read are left out and named in `note`.
        Raises duckdb.Error, and StoreError for a damaged file.
        """
        skipped: dict[int, duckdb.Error] = {}
        start = after if after >= 0 else self._before_last(table, -after, job, skipped)
        found, more = self._first_rows(table, start, limit, job=job, skipped=skipped)
        columns = self._columns(table, start, found)
        errors = list(skipped.values())
        note = str(self._partitions.archive.away(skipped, errors[0])) if errors else ""
        return LogPage(columns, found.num_rows, int(columns[OFFSET][-1]) if found.num_rows else start, note, more)

    def read_round(self, offsets: Mapping[str, int], upto: int, limit: int) -> tuple[int, dict[str, dict[str, Column]]]:
        """Rows of several tables, of each those beyond its offset: all up to one offset, which is returned with them.

        It is `upto`, or a lower one where a table has more than `limit` rows, or more bytes than its share of
        READ_BYTES. A table without rows is left out. Raises LakeAway where a day in the lake cannot be read.
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
        self,
        table: str,
        after: int,
        limit: int,
        *,
        job: str = "",
        upto: int = _BEYOND,
        room: float = READ_BYTES,
        skipped: dict[int, duckdb.Error] | None = None,
    ) -> tuple[pa.Table, bool]:
        """Rows of the first day that has any beyond `after`, none otherwise; and whether there may be more.

        skipped: gets the days in the lake that cannot be read; without it they raise LakeAway.
        """
        found = _empty(table)
        parts = self._partitions.after(table, after, upto, job)
        cut = False
        for part in parts:
            try:
                found, cut = self._gather(part, table, after, limit, job, upto, room)
            except duckdb.Error as error:
                if part.archived is None or not unreadable(error):
                    raise
                if skipped is None:
                    raise self._partitions.archive.away([part.archived], error) from None
                skipped[part.archived] = error
            if found.num_rows:
                break
        return found, cut or part is not parts[-1]

    def _gather(
        self, part: DaySource, table: str, after: int, limit: int, job: str, upto: int, room: float
    ) -> tuple[pa.Table, bool]:
        """At most `limit` rows and `room` bytes, by queries whose limits are estimated from the sizes of earlier rows.

        Also says whether there may be more. One query for `limit` rows could materialise gigabytes of text, most of
        which would not fit.
        """
        step = _TEXT_STEP if Kind.TEXT in TABLES[table].columns.values() else limit
        parts: list[pa.Table] = []
        while True:
            asked = min(step, limit)
            found = self._select(part, table, after, upto, job, asked)
            filled = np.cumsum(_weights(found))
            fits = int(np.searchsorted(filled, room, side="right"))
            parts.append(found.slice(0, fits if parts else max(fits, 1)))
            limit -= fits
            if fits < asked or limit == 0:
                # A window of a sealed file may end before the day.
                last = part.files[-1].last if part.files and not job and found.num_rows else 0
                more = last > 0 and found[OFFSET][-1].as_py() < min(last, upto)
                return pa.concat_tables(parts), fits < found.num_rows or limit == 0 or more
            after = found[OFFSET][-1].as_py()
            room -= filled[-1]
            step = max(1, min(4 * step, _STEP_LIMIT, int(room / filled[-1] * fits)))

    def _select(self, part: DaySource, table: str, after: int, upto: int, job: str, limit: int) -> pa.Table:
        """The first rows of a day beyond `after`, in order."""
        if part.archived is not None and not job:
            return self._of_files(part.files, table, after, upto, limit)
        if table in self._windows and (job or after >= self._windows[table].upto):
            del self._windows[table]  # its reader has left the archived days, or asks for a job
        condition, bound = _of_job(job)
        within = f'"{OFFSET}" > ? AND "{OFFSET}" <= ? AND {condition}'
        # In a table of the database insertion order is offset order and DuckDB preserves it, so a LIMIT ends the scan
        # early. A sort would scan everything beyond `after` for every page.
        order = "" if part.archived is None else f'ORDER BY "{OFFSET}"'
        query = f"SELECT {quoted(LOG_COLUMNS[table])} FROM {part.source} WHERE {within} {order} LIMIT ?"
        rows = self.connection.execute(query, [after, upto, *bound, limit]).to_arrow_table()
        return rows if part.archived is None else _single(rows)

    def _of_files(self, files: Sequence[SealedFile], table: str, after: int, upto: int, limit: int) -> pa.Table:
        """The same of sealed files, which are sorted by job: those of the first window that has any."""
        start = after
        for file in files:
            while after < min(file.last, upto):
                window = self._windows.get(table)
                if window is None or not window.after <= after < window.upto:
                    self._windows.pop(table, None)  # rather than have both in memory
                    window = self._windows[table] = self._sorted(file, after)._replace(after=start)
                first, end = np.searchsorted(window.rows[OFFSET].to_numpy(), (after, upto), side="right").tolist()
                if end > first:
                    return window.rows.slice(first, min(end - first, limit))
                after = window.upto
        return _empty(table)

    def _sorted(self, file: SealedFile, after: int) -> _Window:
        size = 8 * _STEP_LIMIT if Kind.TEXT in TABLES[file.table].columns.values() else WINDOW_ROWS
        after, upto = max(after, file.first - 1), file.last
        if file.rows > size:  # offsets count the rows of all tables
            upto = min(upto, after + max((file.last - file.first + 1) * size // file.rows, 1))
        query = (
            f"SELECT {quoted(LOG_COLUMNS[file.table])} FROM {self._partitions.archive.source([file])}"
            f' WHERE "{OFFSET}" > ? AND "{OFFSET}" <= ? ORDER BY "{OFFSET}" LIMIT ?'
        )
        rows = _single(self.connection.execute(query, [after, upto, size]).to_arrow_table())
        if rows.num_rows == size:
            upto = rows[OFFSET][-1].as_py()
        return _Window(after, upto, rows)

    def _columns(self, table: str, after: int, rows: pa.Table) -> dict[str, Column]:
        """Rows as arrays and lists. Raises StoreError."""
        columns: dict[str, Column] = {
            name: column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy()
            for name, column in zip(rows.column_names, rows.columns, strict=True)
        }
        if np.any(np.diff(np.asarray(columns[OFFSET], np.int64), prepend=after) <= 0):
            raise StoreError(f"table {table!r} in {self._path} is not in the order of its offsets; the file is damaged")
        return columns

    def _before_last(self, table: str, count: int, job: str, skipped: dict[int, duckdb.Error]) -> int:
        """The offset before the last `count` rows. skipped: gets the days in the lake that cannot be read."""
        condition, bound = _of_job(job)
        first: int | None = None
        days = [day.day for day in self._partitions.days]
        head = max((file.last for file in self._partitions.archive.files(table, days)), default=0)
        for part in reversed(self._partitions.after(table, 0, job=job)):
            newest = f'SELECT "{OFFSET}" FROM {part.source} WHERE {condition} ORDER BY 1 DESC LIMIT ?'
            last_of = f'SELECT max("{OFFSET}") FROM {part.source}' if part.archived is None else "SELECT 0"
            query = f'SELECT count(*), min("{OFFSET}"), ({last_of}) FROM ({newest})'
            try:
                ((found, oldest, last),) = self.connection.execute(query, [*bound, count]).fetchall()
            except duckdb.Error as error:
                if part.archived is None or not unreadable(error):
                    raise
                skipped[part.archived] = error
                continue
            first = oldest if found else first
            head = max(head, last or 0)
            count -= found
            if count == 0:
                break
        return head if first is None else first - 1


def _empty(table: str) -> pa.Table:
    return pa.table({name: pa.array([], _ARROW[kind]) for name, kind in LOG_COLUMNS[table].items()})


def _single(rows: pa.Table) -> pa.Table:
    """Sorted rows of the lake, each once. Raises duckdb.Error where its files have one twice."""
    if np.any(np.diff(rows[OFFSET].to_numpy()) <= 0):
        raise duckdb.InvalidInputException("files of the lake have the same rows")
    return rows


def _of_job(job: str) -> tuple[str, list[str]]:
    """The condition on rows, and its parameters."""
    return ("job = ?", [job]) if job else ("true", [])


def _weights(rows: pa.Table) -> npt.NDArray[np.float64]:
    """Bytes of each row in a message: 8 for a number; for a string its length and a header of at most 5."""
    weights = np.zeros(rows.num_rows)
    for column in rows.columns:
        weights += pc.binary_length(column).to_numpy() + 5 if pa.types.is_string(column.type) else 8
    return weights
