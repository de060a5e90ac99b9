"""Expiry: rows leave the lake after a period, which tables and clusters may each have their own.

A day of a table and cluster leaves as a whole, many of them by one commit. Their files are deleted with those that
merges have replaced.
"""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, NamedTuple, Self

from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.compaction import Span
from barograph_collector.lake.layout import CLUSTER, DAY, RowRange, is_clustered, places_of
from barograph_collector.storage.days.partitions import actual_day
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS
from barograph_collector.storage.store import Store

_WORD: Final = re.compile(r"(?:(?:(?P<cluster>[^/\s=]+)/)?(?P<table>\w*)=)?(?P<days>\d{1,6})")
MIN_VERDICT_DAYS: Final = 31
"""A restarted alerts daemon takes a job of the last 30 days that has no verdict for one that is open."""
MAX_LEAVING: Final = 100
"""Days of a table and cluster that leave by one commit: the first time there may be thousands."""
FORM: Final = "DAYS, TABLE=DAYS, CLUSTER/=DAYS or CLUSTER/TABLE=DAYS, separated by spaces"
_log = logging.getLogger(__name__)


class Periods(NamedTuple):
    """Days before today that the lake keeps, 0 for all: by cluster and table, where '' stands for any.

    >>> periods = Periods.read("730 blocks=365 test/=30 test/blocks=7 jobs=0")
    >>> [periods.of("phases", "hpc"), periods.of("blocks", "hpc"), periods.of("phases", "test")]
    [730, 365, 30]
    >>> periods.of("blocks", "test"), periods.of("runs", "hpc"), periods.of("jobs", "hpc")
    (7, 0, 0)
    >>> periods.of("scores", "test")
    31
    """

    days: Mapping[tuple[str, str], int]

    @classmethod
    def read(cls, text: str) -> Self:
        """From its text. Raises ValueError, which says what was expected."""
        days = {}
        for word in text.split():
            match = _WORD.fullmatch(word)
            if match is None:
                raise ValueError(f"{word!r} is no period, expected {FORM}")
            cluster, table = match["cluster"] or "", match["table"] or ""
            if table and table not in LOG_COLUMNS:
                raise ValueError(f"{word!r} names no table, expected one of {', '.join(LOG_COLUMNS)}")
            if cluster and table and not is_clustered(table):
                raise ValueError(f"{word!r}: rows of {table} belong to no cluster, expected {table}=DAYS")
            days[cluster, table] = int(match["days"])
        return cls(days)

    def of(self, table: str, cluster: str) -> int:
        """The period of a table in a cluster. Tables that are kept for ever in the log need one of their own."""
        for key in ((cluster, table), ("", table), *(((cluster, ""), ("", "")) if table in DAILY else ())):
            if key in self.days:
                days = self.days[key]
                return max(days, MIN_VERDICT_DAYS) if days and table == "scores" else days
        return 0


KEEP: Final = Periods({})


class Expirer:
    """Lets days of one log leave the lake; for the thread of the publisher, except `periods`."""

    def __init__(self, store: Store) -> None:
        self.periods = KEEP
        """Replaced as a whole, from any thread."""
        self._store = store
        self._done: object = None
        self._gone = _Gone()

    def step(self, catalog: Catalog) -> int:
        """Let days of a table and cluster leave, at most MAX_LEAVING; returns how many. Raises LakeError.

        A day that is in the database stays: it has yet to be compared with its files.
        """
        days, periods = self._store.database.partitions.days, self.periods
        state = (periods, *((day.day, day.archived) for day in days))
        if not days or not periods.days or state == self._done:
            return 0
        hot = {day.day for day in days if not day.archived}
        actual = {day.day: actual_day(day, days) for day in days}
        name = self._store.database.name
        files = [file for file in catalog.files() if Span.of(*file[1:], name) is not None]
        leaving: dict[PurePosixPath, RowRange] = {}
        for table, path, _ in files:
            places = places_of(table, path.parent)
            day = (datetime.date.fromisoformat(places[DAY]) - EPOCH).days
            period = periods.of(table, places.get(CLUSTER, ""))
            is_over = period and actual.get(day, day) < days[-1].day - period and not (table in DAILY and day in hot)
            if is_over and (path.parent in leaving or len(leaving) < MAX_LEAVING):
                leaving[path.parent] = RowRange(table, name, places)
        if leaving:
            self._gone.rows += catalog.remove(leaving.values())
            self._gone.bytes += sum(size for _, path, size in files if path.parent in leaving)
            self._gone.dates |= {datetime.date.fromisoformat(one.places[DAY]) for one in leaving.values()}
            return len(leaving)
        self._done = state
        self._gone.log()
        self._gone = _Gone()
        return 0


@dataclass
class _Gone:
    """What has left the lake."""

    dates: set[datetime.date] = field(default_factory=set)
    rows: int = 0
    bytes: int = 0

    def log(self) -> None:
        """One line for all of it, unless there was nothing."""
        if self.dates:
            text = "%d rows and %d bytes of files have left the lake, of %d days from %s to %s: their periods were over"
            _log.info(text, self.rows, self.bytes, len(self.dates), min(self.dates), max(self.dates))
