"""The publisher thread: brings committed rows of the log into the lake, in batches of one day.

It reads the database as any query does, so neither acknowledgements nor commits wait for it. Whatever fails is tried
again from the position that the lake itself has.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self

import duckdb
import msgspec
import pyarrow as pa

from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM, System
from barograph_collector.ingest.counters import Durations
from barograph_collector.lake.archiver import Archiver
from barograph_collector.lake.batches import BatchReader
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.compaction import Compactor
from barograph_collector.lake.expiry import KEEP, Expirer, Periods
from barograph_collector.lake.files import FileWriter, LakeFile
from barograph_collector.lake.layout import MARKS
from barograph_collector.lake.place import Lake
from barograph_collector.lake.refiling import Refiler
from barograph_collector.storage.connection import first_line
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.store import Store

PUBLISH_SECONDS: Final = 15.0
"""Time between two batches of rows that keep coming."""
LOOK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 120.0
"""A step that takes longer, such as a commit or a merge, waits for a store or a database that does not answer."""
MAX_HEADS: Final = 1_000
_NUMBERS: Final = re.compile(r"\d+")
_log = logging.getLogger(__name__)


@dataclass
class LakeFigures:
    """Counts since the start of this process. Each is written by the publisher; a scrape only reads."""

    position: int = 0
    """The offset up to which rows are in the lake, as far as is known."""
    rows: int = 0
    files: int = 0
    bytes: int = 0
    merged: int = 0
    """Files that merges have replaced."""
    archived: int = 0
    """Days that have left the database."""
    expired: int = 0
    """Days of one table and cluster whose period was over."""
    failures: int = 0
    commits: Durations = field(default_factory=Durations)
    """Batches, and the time from reading their rows to their commit."""
    waiting_since: float = 0.0
    """When the oldest rows that are not in the lake were in the database (monotonic); 0 for none."""
    step_since: float = 0.0
    """When the present step began (monotonic); 0 for none."""

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest committed rows that are not in the lake. now: monotonic, in seconds."""
        waited = now - self.waiting_since if self.waiting_since else 0.0
        return max(waited, now - self.step_since) if self.is_silent(now) else waited

    def is_silent(self, now: float) -> bool:
        """Whether the lake has not answered for SILENT_SECONDS. now: monotonic, in seconds."""
        return self.step_since > 0 and now - self.step_since > SILENT_SECONDS


class LakeMark(msgspec.Struct):
    """Beside the log: how far which lake was, so that no other one and no empty directory is taken for it.

    writers: the words of the processes that may have committed last.
    """

    lake: str = ""
    position: int = 0
    writers: tuple[str, ...] = ()

    @classmethod
    def read(cls, log: Path, disk: Disk) -> Self:
        """That of a log; without a name if it has had no lake."""
        try:
            return msgspec.json.decode(disk.read(log.with_name(f"{log.name}.lake")), type=cls)
        except (OSError, msgspec.MsgspecError):
            return cls()

    def write(self, log: Path, disk: Disk) -> None:
        """Put it beside a log; what a loss of power leaves is this one. Raises OSError."""
        disk.replace(log.with_name(f"{log.name}.lake"), msgspec.json.encode(self))
        # An older one would not have the word of the last commit, and this log would be taken for a copy.
        disk.sync_directory(log.parent)


class LakeParts(NamedTuple):
    """What a publisher is made of."""

    catalog: Callable[[Lake, str, Path, System], Catalog] = Catalog
    writer: Callable[[duckdb.DuckDBPyConnection, DataPath, str, str], FileWriter] = FileWriter
    batches: Callable[[Store], BatchReader] = BatchReader
    compactor: Callable[[str, System], Compactor] = Compactor


REAL: Final = LakeParts()


class Publisher:
    """Publishes the rows of a store to a lake, from `run` until `end` is called."""

    def __init__(
        self,
        store: Store,
        lake: Lake,
        system: System = SYSTEM,
        seconds: float = PUBLISH_SECONDS,
        periods: Periods = KEEP,
        parts: LakeParts = REAL,
    ) -> None:
        """seconds: time between two batches; at once while more than a batch waits. periods: see `Expirer`.

        parts: simulated ones.
        """
        self.figures = LakeFigures()
        self._store = store
        self._lake = lake
        self._system = system
        self._disk = system.disk
        self._monotonic = system.clock.monotonic
        self._seconds = seconds
        self._ending = system.threads.event()
        self._hurried = False
        self._catalog: Catalog | None = None
        self._parts = parts
        self._batches = parts.batches(store)
        self._compactor = parts.compactor(store.database.name, system)
        self._refiler = Refiler(store)
        self.archiver = Archiver(store)
        self._compactor.beside = self.archiver.beside = self._beside
        self.expirer = Expirer(store)
        self.expirer.periods = periods
        self._position = 0
        self._opened_at = -1
        """The position that was logged when the lake was opened; -1 before."""
        mark = LakeMark.read(store.path, self._disk)
        self._known, self._writers = (mark.position, mark.writers) if mark.lake == lake.name else (0, ())
        self._word = secrets.token_hex(4)
        # Heads of the log and when they were seen, oldest first.
        self._heads: deque[tuple[int, float]] = deque()
        self._noting = system.threads.lock()
        self._due = float("-inf")
        self._complaint = ""
        self._is_silent = False
        store.published = self._known

    def run(self) -> None:
        """Work until `end`."""
        try:
            while not self._ending.wait(LOOK_SECONDS):
                self.look()
        finally:
            self.close()

    def end(self) -> None:
        """Let `run` return after the batch under way; from any thread."""
        self._ending.set()

    def hurry(self, on: bool) -> None:
        """Publish whatever there is at once, while on; from any thread."""
        self._hurried = on

    def watch(self) -> None:
        """Note what waits, and log once that the lake does not answer, which raises nothing.

        From another thread than `run`: a merge may take half a minute.
        """
        self._note_head()
        before, self._is_silent = self._is_silent, self.figures.is_silent(self._monotonic())
        if self._is_silent and not before:
            text = "the lake %s has not answered for %g s; the log goes on, and the rows follow once it does"
            _log.error(text, self._lake.data.lake, SILENT_SECONDS)

    def look(self) -> None:
        """Publish if a batch is due; failures are logged, counted, and tried again later."""
        self._note_head()
        while self._is_due() and not self._ending.is_set():
            try:
                more = any(map(self._stepped, (self.publish, self.refile, self.compact, self.archive, self.expire)))
            except (LakeError, OSError, duckdb.Error, pa.ArrowException) as error:
                self._fail(error)
                return
            if self._complaint:
                _log.info("the lake takes rows again")
                self._complaint = ""
            self._due = self._monotonic() + (0.0 if more else self._seconds)
            if not more:
                return
            # Rows may come as fast as they are published.
            self._note_head()

    def _stepped(self, step: Callable[[], bool]) -> bool:
        before, self.figures.step_since = self.figures.step_since, self._monotonic()
        try:
            return step()
        finally:
            self.figures.step_since = before

    def _beside(self, work: Callable[[], None]) -> None:
        """Do what takes long and commits nothing in another thread, and publish meanwhile. Raises as both."""
        done, errors = self._system.threads.event(), list[BaseException]()

        def run() -> None:
            try:
                work()
            except BaseException as error:  # for the one who waits
                errors.append(error)
            finally:
                done.set()

        self._system.threads.start("lake files", run)
        seconds = LOOK_SECONDS
        while not done.wait(seconds):
            seconds = LOOK_SECONDS
            self._note_head()
            if errors or not self._is_due():
                continue
            try:
                seconds = 0.0 if self._stepped(self.publish) else LOOK_SECONDS
            except Exception as error:  # raised when the other thread has ended: it reads the lake
                errors.append(error)
            self._due = self._monotonic() + (self._seconds if seconds else 0.0)
        if errors:
            raise errors[0]

    def _is_due(self) -> bool:
        if self._hurried and not self._complaint and self._position < self._store.head:
            return True
        return self._monotonic() >= self._due

    def publish(self) -> bool:
        """Publish one batch; whether rows are left.

        Raises LakeError, OSError, duckdb.Error and pyarrow.ArrowException: the next call begins at the lake's position.
        """
        catalog = self._catalog or self._open()
        head = self._store.head
        if self._position >= head:
            if self._position > head:
                raise LakeError(
                    f"the lake {self._lake.data.lake} has rows of this log up to {self._position}, the log has {head}:"
                    " it was restored from an older copy"
                )
            return False
        catalog.check(self._known)
        began = self._monotonic()
        batch = self._batches.next(self._position, head)
        writer = self._writer(catalog)
        files: list[LakeFile] = []
        for table, rows in self._batches.rows(batch):
            for day, part in self._batches.by_day(batch, rows):
                files += writer.write(table, part, day, batch.first, batch.last)
        catalog.commit(files, self._position, batch.last)
        self._compactor.add(files)
        self._reach(batch.last)
        self.figures.commits.observe(self._monotonic() - began)
        self.figures.rows += sum(file.rows for file in files if file.table != MARKS)
        self.figures.files += len(files)
        self.figures.bytes += sum(file.size for file in files)
        return batch.last < head

    def refile(self) -> bool:
        """Let rows be under their days that an earlier version has filed otherwise; whether there were some.

        Raises as `publish`.
        """
        catalog = self._checked()
        if not self._refiler.step(catalog, self._writer(catalog)):
            return False
        self._compactor.forget()
        self.archiver.forget()
        return True

    def compact(self) -> bool:
        """Merge files of one table, cluster and day; whether there were some. Raises as `publish`."""
        catalog = self._checked()
        if not self._store.database.partitions.days:
            return False
        merged = self._compactor.merge(catalog, self._writer(catalog), self._batches.day(self._position + 1))
        if not merged:
            if not self._store.calendar.held:
                self._compactor.expire(catalog)
            return False
        self.figures.merged += merged
        self.archiver.forget()
        return True

    def archive(self) -> bool:
        """Let a day that the lake has leave the database; whether there was one. Raises as `publish`."""
        catalog = self._checked()
        try:
            found = self.archiver.step(catalog, self._position)
        except BlockingIOError:  # a backup is made
            return False
        self.figures.archived = self.archiver.archived
        return found

    def expire(self) -> bool:
        """Let a day whose period is over leave the lake; whether there was one. Raises as `publish`."""
        catalog = self._checked()
        if self._store.calendar.held or not (expired := self.expirer.step(catalog)):
            return False
        self.figures.expired += expired
        self._compactor.forget()
        self.archiver.forget()
        return True

    def _writer(self, catalog: Catalog) -> FileWriter:
        return self._parts.writer(catalog.connection, catalog.data, self._store.database.name, self._word)

    def _checked(self) -> Catalog:
        """The catalog of a lake that is still there."""
        catalog = self._catalog or self._open()
        catalog.check(self._known)
        return catalog

    def _open(self) -> Catalog:
        scratch = self._store.path.with_name(f"{self._store.path.name}.lake.tmp")
        self._lake.data.refresh()
        catalog = self._parts.catalog(self._lake, self._store.database.name, scratch, self._system)
        catalog.writer, catalog.accepted = self._word, self._writers
        try:
            position = catalog.open(self._known)
        except BaseException:
            catalog.close()
            raise
        self._catalog = catalog
        with self._store.cursor() as log:
            self._lake.data.authorize(log)
        self.archiver.forget()
        self._refiler.forget()
        # Before a commit has this word: after a crash it is not taken for that of another process.
        self._writers = (catalog.last_writer, self._word)
        self._reach(position)
        if position != self._opened_at:  # one that takes no rows is opened every RETRY_SECONDS
            name, self._opened_at = self._store.database.name, position
            _log.info("the lake %s has rows up to %d of log %s", self._lake.data.lake, position, name)
        return catalog

    def close(self) -> None:
        """Let another committer in; the next `publish` opens the lake again."""
        self._compactor.forget()
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _reach(self, position: int) -> None:
        self._position = self._known = self.figures.position = self._store.published = position
        with self._noting:
            while self._heads and self._heads[0][0] <= position:
                self._heads.popleft()
            self.figures.waiting_since = self._heads[0][1] if self._heads else 0.0
        LakeMark(self._lake.name, position, self._writers).write(self._store.path, self._disk)

    def _note_head(self) -> None:
        with self._noting:
            head = self._store.head
            if head <= self._position or (self._heads and self._heads[-1][0] == head):
                return
            if len(self._heads) == MAX_HEADS:
                # The lake has failed for long: every second one is enough.
                self._heads = deque(list(self._heads)[::2])
            self._heads.append((head, self._monotonic()))
            self.figures.waiting_since = self._heads[0][1]

    def _fail(self, error: Exception) -> None:
        self.close()
        self.figures.failures += 1
        self._due = self._monotonic() + RETRY_SECONDS
        if isinstance(error, duckdb.Error):
            self._store.note_error(error)
        text = self._lake.data.explain(first_line(error)) if isinstance(error, duckdb.Error) else str(error)
        # A file that is written again has the offset of its last row in its name.
        if (complaint := _NUMBERS.sub("", text)) != self._complaint:
            _log.error("%s; the log goes on, and keeps the rows until the lake takes them", text)
            self._complaint = complaint
