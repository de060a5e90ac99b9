"""Periods of the log: ranges of offsets that the lake gets as files, each once it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import duckdb

from barograph_collector.storage.connection import transaction
from barograph_collector.storage.days.archive import SealedFile, store_files

MAX_PERIOD_ROWS: Final = 10_000_000
"""A period with so many ends early: files and the memory to sort them have a limit."""


class OpenPeriod(NamedTuple):
    """A period that is not sealed: its first offset, and the number of the period of time in which it began."""

    first: int
    number: int


class Periods:
    """The periods that the lake lacks, the last of which has not ended. Belongs to the writer thread.

    sealed: the offset up to which the lake has all rows, 0 for none. place: the name of this lake, empty for none.
    All methods raise duckdb.Error.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        # Replaced as a whole by each change: the sealer reads them.
        rows = connection.execute("SELECT first_offset, number FROM periods ORDER BY first_offset").fetchall()
        self.unsealed = tuple(OpenPeriod(*row) for row in rows)
        row = connection.execute("SELECT place, sealed FROM lake").fetchone()
        self.place, self.sealed = row or ("", 0)

    def begin(self, number: int, head: int, firsts: Sequence[int]) -> None:
        """Let rows after offset `head` be in the period of time `number`, or in the present one if that lasts.

        firsts: of each day the first offset: a day is the end of a period, also of those that are older than the lake.
        """
        if not self.unsealed:
            self._replace(
                [
                    OpenPeriod(first, number)
                    for first in sorted({self.sealed + 1, *firsts, head + 1})
                    if first > self.sealed
                ]
            )
            return
        last = self.unsealed[-1]
        is_over = number > last.number or last.first < firsts[-1] or head - last.first + 1 >= MAX_PERIOD_ROWS
        if is_over:
            self._replace([*(period for period in self.unsealed if period.first <= head), OpenPeriod(head + 1, number)])

    def ended(self) -> tuple[int, int] | None:
        """The first and the last offset of the oldest period that has ended; None for none. From any thread."""
        if len(unsealed := self.unsealed) < 2:
            return None
        return unsealed[0].first, unsealed[1].first - 1

    def seal(self, last: int, files: Sequence[SealedFile], place: str) -> None:
        """Note that the lake has all rows up to `last`, the newest of them in these files."""
        left = self.after(last)
        with transaction(self._connection):
            self._store(left)
            store_files(self._connection, files)
            self._connection.execute("DELETE FROM lake")
            self._connection.execute("INSERT INTO lake VALUES (?, ?)", [place, last])
        self.unsealed, self.sealed, self.place = left, last, place

    def after(self, last: int) -> tuple[OpenPeriod, ...]:
        """The periods behind an offset, the first of which may have begun before it."""
        left = [period for period in self.unsealed if period.first > last]
        before = [period for period in self.unsealed if period.first <= last]
        if before and (not left or left[0].first > last + 1):
            left.insert(0, OpenPeriod(last + 1, before[-1].number))
        return tuple(left)

    def _replace(self, periods: Sequence[OpenPeriod]) -> None:
        with transaction(self._connection):
            self._store(periods)
        self.unsealed = tuple(periods)

    def _store(self, periods: Sequence[OpenPeriod]) -> None:
        self._connection.execute("DELETE FROM periods")
        for period in periods:
            self._connection.execute("INSERT INTO periods VALUES (?, ?)", list(period))
