"""Rows that are filed under an earlier day than theirs are filed under their own.

Earlier versions did so where a log had got a lake later.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.compaction import Span
from barograph_collector.lake.files import FileWriter, LakeFile
from barograph_collector.lake.layout import DAY, MARKS, RowRange, places_of
from barograph_collector.storage.layout import OFFSET
from barograph_collector.storage.store import Store
from barograph_collector.storage.text import parquet

_log = logging.getLogger(__name__)


class _Part(NamedTuple):
    """The offsets of a day in a file."""

    date: datetime.date
    first: int
    last: int


class Refiler:
    """For the thread of the publisher. Looks through the lake once after each `forget`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._done = False

    def forget(self) -> None:
        """The lake was opened again."""
        self._done = False

    def step(self, catalog: Catalog, writer: FileWriter) -> int:
        """Write the files anew that have rows of later days than theirs; returns how many there were.

        Raises LakeError, OSError and duckdb.Error.
        """
        if self._done:
            return 0
        found = 0
        for table, path, size in catalog.files():
            span = Span.of(path, size, self._store.database.name)
            if span is None or table == MARKS:
                continue
            # The name has the offsets of the batch, of which this file has those of one day.
            parts = list(self._parts(table, path, span))
            if len(parts) > 1 and self._has(catalog, path, parts[1].first, span.last):
                self._refile(catalog, writer, table, span, parts)
                found += 1
        self._done = True
        if found:
            _log.info("%d files of the lake had rows of later days, which have files of their own now", found)
        return found

    def _parts(self, table: str, path: PurePosixPath, span: Span) -> Iterator[_Part]:
        date, first = datetime.date.fromisoformat(places_of(table, path.parent)[DAY]), span.first
        for day in self._store.database.partitions.days:
            if day.date > date and first < day.first_offset <= span.last:
                yield _Part(date, first, day.first_offset - 1)
                date, first = day.date, day.first_offset
        yield _Part(date, first, span.last)

    def _has(self, catalog: Catalog, path: PurePosixPath, first: int, last: int) -> bool:
        relation = parquet([catalog.data.at(path)])
        query = f'SELECT 1 FROM {relation} WHERE "{OFFSET}" BETWEEN {first} AND {last} LIMIT 1'
        return catalog.connection.execute(query).fetchone() is not None

    def _refile(self, catalog: Catalog, writer: FileWriter, table: str, span: Span, parts: list[_Part]) -> None:
        files: list[LakeFile] = []
        for date, first, last in parts:
            if self._has(catalog, span.path, first, last):
                query = (
                    f'SELECT * FROM {parquet([catalog.data.at(span.path)])} WHERE "{OFFSET}" BETWEEN {first} AND {last}'
                )
                folder = span.path.parent.with_name(f"{DAY}={date}")
                catalog.data.clear(folder, f"{self._store.database.name}-{first}-{last}-*.parquet")
                files.append(writer.rewrite(table, folder, first, last, query))
        within = RowRange(table, self._store.database.name, places_of(table, span.path.parent), span.first, span.last)
        catalog.replace(within, *files)
