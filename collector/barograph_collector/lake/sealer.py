"""The sealer: brings each period of the log that has ended into the lake, in a thread of the collector.

The files of the period, then its marks, then the catalog, then the log's own list: a process that was killed between
two of these does again what has no effect twice. Nothing waits for the lake: what it lacks stays in the database.
"""

# ruff: noqa: RUF009 - the calls in the dataclass make its fields

from __future__ import annotations

import contextlib
import logging
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.ingest.counters import Durations, metric
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.files import LakeFiles
from barograph_collector.lake.keep import KEEP_ALL, Keep
from barograph_collector.lake.place import Lake
from barograph_collector.storage.connection import reason_of
from barograph_collector.storage.days.archive import SealedFile
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.days.retention import KEEP_ALL as KEEP_DAYS
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.layout import LOG_COLUMNS
from barograph_collector.storage.store import Store

POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 120.0
"""A step that takes longer waits for a store or a database that does not answer."""
_NUMBERS: Final = re.compile(r"\d+")
_log = logging.getLogger(__name__)


@dataclass
class LakeFigures:
    """Counts since the start of this process. Each is written by the sealer; a scrape only reads."""

    last_offset: int = metric("Offset of the last row in the lake.", gauge=True)
    period_seconds: float = metric("Length of a period, in seconds.", float, gauge=True)
    rows: int = metric("Total number of rows sealed.")
    files: int = metric("Total number of Parquet files written.")
    bytes: int = metric("Total size of these files, in bytes.")
    files_expired: int = metric("Total number of files that have left the lake.")
    failures: int = metric("Total number of failed attempts to seal a period.")
    seal_seconds: Durations = metric("Duration of sealing a period, in seconds.", Durations)
    waiting_since: float = 0.0
    """When the oldest period with rows that the lake lacks began (Unix seconds); 0 for none."""
    step: str = ""
    """What is under way, in words, empty for nothing, since `step_since` (monotonic)."""
    step_since: float = 0.0

    def lag_seconds(self, now: float) -> float:
        """Largest possible age of the oldest committed rows that are not in the lake. now: Unix seconds."""
        return max(now - self.waiting_since, 0.0) if self.waiting_since else 0.0


@dataclass(eq=False)
class Sealer:
    """Seals the periods of a store, from `run` until `end` is called.

    keep: how long the lake keeps rows. retention: which days stay in the database. reserve: bytes of the lake's disk
    that stay free. call: executes a function in the thread that commits to the store, and raises as that; all four may
    be replaced from any thread. new_catalog, new_files: simulated ones.
    """

    store: Store
    lake: Lake
    system: System = SYSTEM
    keep: Keep = KEEP_ALL
    retention: Retention = KEEP_DAYS
    reserve: int = 0
    call: Callable[[Callable[[], object]], object] = lambda function: function()
    new_catalog: Callable[[Lake, Path, System], Catalog] = Catalog
    new_files: Callable[[duckdb.DuckDBPyConnection, DataPath, str], LakeFiles] = LakeFiles

    def __post_init__(self) -> None:
        self.figures = LakeFigures(
            last_offset=self.store.database.periods.sealed, period_seconds=self.store.period_seconds
        )
        self._monotonic = self.system.clock.monotonic
        self._ending = self.system.threads.event()
        self._catalog: Catalog | None = None
        self._files: LakeFiles | None = None
        self._word = secrets.token_hex(8)
        self._has_claimed = False
        self._opened_at = -1
        self._position = 0
        """The offset up to which the lake has rows."""
        self._expired: object = None
        self._due = float("-inf")
        self._complaint = ""
        self._silent_since = float("-inf")

    def run(self) -> None:
        """Work until `end`."""
        try:
            while not self._ending.wait(POLL_SECONDS):
                self.poll()
        finally:
            self.close()

    def end(self) -> None:
        """Let `run` return after the period under way; from any thread."""
        self._ending.set()

    def watch(self) -> None:
        """Note how long rows wait, and log once that a step hangs, which raises nothing; from any thread."""
        unsealed = self.store.database.periods.unsealed
        waits = unsealed and unsealed[0].first <= self.store.head
        self.figures.waiting_since = unsealed[0].number * self.store.period_seconds if waits else 0.0
        step, since = self.figures.step, self.figures.step_since
        if step and since != self._silent_since and self._monotonic() - since > SILENT_SECONDS:
            self._silent_since = since
            text = "the lake %s: %s has taken more than %g s; the log goes on, and the rows follow once it is done"
            _log.error(text, self.lake.data.lake, step, SILENT_SECONDS)

    def poll(self) -> None:
        """Seal what has ended; failures are logged, counted, and tried again later."""
        self.watch()
        while self._monotonic() >= self._due and not self._ending.is_set():
            try:
                more = self.seal() or self.expire()
            except (LakeError, OSError, duckdb.Error, pa.ArrowException) as error:
                self._fail(error)
                return
            finally:
                self.figures.step = ""
            if self._complaint:
                _log.info("the lake takes rows again")
                self._complaint = ""
            if not more:
                break
        self.watch()

    def seal(self) -> bool:
        """Seal the oldest period that has ended; whether there was one.

        Raises LakeError, OSError, duckdb.Error and pyarrow.ArrowException: the next call does the rest.
        """
        store, began = self.store, self._monotonic()
        files = self._files or self._open()
        periods = store.database.periods
        is_over = periods.unsealed[-1].number < store.period if periods.unsealed else store.head > periods.sealed
        if is_over:
            self.call(lambda: store.database.begin_period(store.period))
        if self._position > periods.sealed:
            return self._adopt(files)
        if (ended := periods.ended()) is None:
            return False
        first, last = ended
        day = store.database.partitions.day_of(first)
        self._note(f"listing periods before {first}")
        self.lake.data.check(known=True)
        if (position := _last(files)) != periods.sealed:
            raise self._foreign(position)
        self._check_reserve()
        self._note(f"writing rows {first} to {last}")
        written: list[SealedFile] = []
        for file, size in files.write(store, day, first, last):
            written.append(file)
            self.figures.files += 1
            self.figures.bytes += size
            self._note(f"writing rows {first} to {last}, behind {file.table},")
        if not files.has_claim(self._word):
            raise self._foreign(last)
        self._note(f"writing the marks of rows {first} to {last}")
        files.write_marks(day, first, last, files.marks_of(store, first, last))
        self._register(first, last, written)
        self.figures.rows += sum(file.rows for file in written)
        self.figures.seal_seconds.observe(self._monotonic() - began)
        return True

    def _adopt(self, files: LakeFiles) -> bool:
        """Note a sealed period that the log does not know: a process was killed, or the log is that of a backup."""
        store, ended = self.store, self.store.database.periods.ended()
        self._note("comparing rows of the log with a sealed period")
        found = [period for period in files.periods() if period.first == store.database.periods.sealed + 1]
        if not found or found[0].last > store.head:
            raise self._foreign(self._position)
        _, first, last, _ = period = found[0]
        written = files.of_period(first, last)
        if {file.table: file.rows for file in written} != files.rows_of(store, first, last) or (
            (first, last) == ended and files.marks([period]) != files.marks_of(store, first, last)
        ):
            raise self._foreign(self._position)
        self._claim(files, self._position)
        self._register(first, last, written)
        return True

    def _register(self, first: int, last: int, written: Sequence[SealedFile]) -> None:
        """List the files of a sealed period in the catalog, then in the log."""
        store, catalog = self.store, self._catalog
        assert catalog is not None
        self._note(f"registering rows {first} to {last}")
        name = store.database.name
        catalog.sync(name, [file.name(name) for file in (*store.database.sealed_files(), *written)])
        self._note(f"listing files of rows {first} to {last} in the log")
        self.call(lambda: store.database.seal(last, written, self.lake.name))
        self._position = max(self._position, last)
        self.figures.last_offset = last
        with contextlib.suppress(BlockingIOError):  # a backup is made: after the next period
            self.call(lambda: store.apply_retention(self.retention))

    def expire(self) -> bool:
        """Let files leave the lake whose time is over; whether there were some. Raises as `seal`."""
        files, database = self._files or self._open(), self.store.database
        days, keep = database.partitions.days, self.keep
        if not keep.days or not days or self.store.calendar.held or self._expired == (keep, days[-1].day):
            return False
        today = days[-1].day
        before = {table: today - keep.of(table) for table in LOG_COLUMNS if keep.of(table)}
        self._note("removing files whose time is over")
        gone: list[int] = []
        self.call(lambda: gone.append(database.forget_files(before)))
        if gone[0]:
            assert self._catalog is not None
            self._catalog.sync(database.name, [file.name(database.name) for file in database.sealed_files()])
            self.figures.files_expired += gone[0]
            _log.info("%d files have left the lake: the time that lake_keep gives them was over", gone[0])
        if keep.days.get(""):
            files.forget_marks(today - keep.days[""])
        self._expired = keep, today
        return bool(gone[0])

    def close(self) -> None:
        """Close the lake; the next `seal` opens it again."""
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._files = None

    def _open(self) -> LakeFiles:
        database, data = self.store.database, self.lake.data
        self._note("opening the lake")
        data.refresh()
        data.check(known=database.periods.sealed > 0)
        data.make()
        scratch = self.store.path.with_name(f"{self.store.path.name}.lake.tmp")
        catalog = self._catalog = self.new_catalog(self.lake, scratch, self.system)
        files = self.new_files(catalog.connection, data, database.name)
        position = self._position = _last(files)
        if position < database.periods.sealed:
            raise LakeError(
                f"the lake {data.lake} has rows of log {database.name} up to {position}, expected up to"
                f" {database.periods.sealed} at least: it is an older copy of {database.periods.place}, or another lake"
            )
        if position == database.periods.sealed:
            self._claim(files, position)
            self._note("comparing the catalog with the files")
            catalog.sync(database.name, [file.name(database.name) for file in database.sealed_files()])
        with self.store.cursor() as log:
            data.authorize(log)
        if position != self._opened_at:  # a lake that takes no rows is opened every RETRY_SECONDS
            self._opened_at = position
            _log.info("the lake %s has rows up to %d of log %s", data.lake, position, database.name)
        self._files = files
        return files

    def _claim(self, files: LakeFiles, position: int) -> None:
        """Let this process be the one that seals, once the lake has what the log has; delete what others left."""
        if not self._has_claimed:
            files.claim(self._word)
            self._has_claimed = True
        if not files.has_claim(self._word):
            raise self._foreign(position)
        files.discard(position)

    def _foreign(self, position: int) -> LakeError:
        return LakeError(
            f"another process seals periods of log {self.store.database.name} in the lake {self.lake.data.lake}, which"
            f" has rows up to {position}; expected up to {self.store.database.periods.sealed}, and no other collector"
            " with a copy of this log: stop one of the two"
        )

    def _check_reserve(self) -> None:
        free = self.lake.data.free_bytes
        if free is not None and free < self.reserve:
            raise LakeError(
                f"the disk of the lake {self.lake.data.lake} is full: it has {free / 1e6:,.0f} MB free, expected"
                f" {self.reserve / 1e6:,.0f} MB (reserve)"
            )

    def _note(self, step: str) -> None:
        self.figures.step_since, self.figures.step = self._monotonic(), step

    def _fail(self, error: Exception) -> None:
        self.close()
        self.figures.failures += 1
        self._due = self._monotonic() + RETRY_SECONDS
        if isinstance(error, duckdb.Error):
            self.store.note_error(error)
        text = self.lake.data.explain(reason_of(error)) if isinstance(error, duckdb.Error) else str(error)
        # The same failure of the next attempt may have other numbers.
        if (complaint := _NUMBERS.sub("", text)) != self._complaint:
            _log.error("%s; the log goes on, and keeps the rows until the lake takes them", text)
            self._complaint = complaint


def _last(files: LakeFiles) -> int:
    return max((period.last for period in files.periods()), default=0)
