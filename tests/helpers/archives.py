"""A log of some days with its lake, and all ways in which its rows are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from barograph_agent.protocol import wire
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import Sealer
from barograph_collector.query.sql import Querier
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET
from barograph_collector.storage.store import Store
from helpers.clocks import calendar_at
from helpers.lakes import any_rows

FIRST = 20_000
WRITTEN = ("blocks", "scores", "silences")
Rows = list[list[tuple[Any, ...]]]


class History:
    """A log of some days with its lake, below a directory."""

    def __init__(self, root: Path, hot_days: int = 1, lake: Lake | None = None) -> None:
        """lake: by default one in a directory below `root`."""
        self.root = root
        self._lake = lake or Lake.at(root / "lake")
        self.day = float(FIRST)
        self.hot_days = hot_days
        self.open()

    def open(self, lake: bool = True) -> None:
        """Open the log, with or without its lake."""
        system = calendar_at(lambda: self.day * DAY_SECONDS)
        self.store = Store(self.root / "log.duckdb", system=system, lake=self._lake.data if lake else None)
        self.sealer = Sealer(self.store, self._lake, system, retention=Retention(hot_days=self.hot_days))

    def write(self, days: int, rows: int = 60) -> None:
        """Rows of some daily tables on so many days, in two periods each."""
        for _ in range(days):
            for _ in range(2):
                numbers = np.random.default_rng(self.store.head)
                entries = [any_rows(table, rows, numbers, 2) for table in WRITTEN]
                self.store.commit(entries, {"s": self.store.head + 1})
                self.day += 0.5
            self.store.apply_retention(self.sealer.retention)

    def seal(self) -> None:
        """Seal what has ended, and archive what is to leave the database."""
        while self.sealer.seal() or self.sealer.expire():
            pass
        self.store.apply_retention(self.sealer.retention)

    def close(self) -> None:
        """Close the log."""
        self.sealer.close()
        self.store.close()

    @property
    def archived(self) -> list[int]:
        """The days that have left the database."""
        return [day.day for day in self.store.database.partitions.days if day.archived]


def paged(store: Store, table: str, limit: int = 33, job: str = "") -> list[tuple[Any, ...]]:
    """A table, page by page."""
    found: list[tuple[Any, ...]] = []
    after = 0
    while (page := store.read(table, after, limit, job)).rows:
        assert not page.note
        found += zip(*(page.columns[name] for name in LOG_COLUMNS[table]), strict=True)
        after = page.next_offset
    return found


def followed(store: Store, limit: int = 50) -> Rows:
    """All daily tables, in rounds."""
    found: dict[str, list[tuple[Any, ...]]] = {table: [] for table in WRITTEN}
    offsets = dict.fromkeys(WRITTEN, 0)
    while True:
        upto, tables = store.read_round(offsets, limit)
        for table, columns in tables.items():
            found[table] += zip(*(columns[name] for name in LOG_COLUMNS[table]), strict=True)
        if not tables and upto == max(offsets.values()):
            return list(found.values())
        offsets = dict.fromkeys(WRITTEN, upto)


def asked(store: Store, query: str) -> wire.Result:
    """The answer of the collector to a query."""
    return Querier(store, lambda: True).answer(wire.Sql(1, query, 100_000, 10.0))


def selected(store: Store, table: str) -> list[tuple[Any, ...]]:
    """A table by SQL."""
    answer = asked(store, f'SELECT * FROM "{table}" ORDER BY "{OFFSET}"')
    assert (answer.error, answer.note) == ("", "")
    return arrow(answer.stream)


def arrow(stream: bytes) -> list[tuple[Any, ...]]:
    """The rows of an answer."""
    return [tuple(row.values()) for row in pa.ipc.open_stream(stream).read_all().to_pylist()]
