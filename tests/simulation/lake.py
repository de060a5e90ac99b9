"""A lake: a catalog that several collectors commit to, and a store of files. Both fail, as real ones do, from a seed.

The publisher, its compactor, and what a commit checks are the real ones; for DuckLake's tables and Parquet there is a
stand-in, and a test holds both to the same answers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from barograph_agent.system.system import System
from barograph_collector.lake.batches import Batch, BatchReader
from barograph_collector.lake.catalog import Catalog, Committed
from barograph_collector.lake.compaction import Compactor
from barograph_collector.lake.files import LakeFile
from barograph_collector.lake.layout import MAIN, MARKS, RowRange, is_clustered, places_of
from barograph_collector.lake.lease import LOCK_SECONDS
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import LakeParts
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.layout import OFFSET
from simulation.machine import EPOCH, Machine, Process

KEEP_SECONDS, EXPIRE_SECONDS = 2.0, 1.0
"""Less than a schedule lasts, and more than a merge takes."""


@dataclass(frozen=True)
class SimulatedFile:
    """What is in a file."""

    table: str
    collector: str
    places: Mapping[str, str]
    rows: pa.Table

    @functools.cached_property
    def offsets(self) -> frozenset[int]:
        """Those of its rows."""
        return frozenset(self.rows[OFFSET].to_pylist())


@dataclass(frozen=True)
class Snapshot:
    """What a commit has left. rows: those that each file still has, by path."""

    at: float
    rows: Mapping[PurePosixPath, frozenset[int]]
    committed: Committed

    @property
    def positions(self) -> Mapping[str, int]:
        """How far it has the rows of each collector."""
        return self.committed.positions


@dataclass
class Failures:
    """Probabilities. lost: of a transaction whose end is not known. refused: of a call of catalog or store."""

    lost: float = 0.0
    refused: float = 0.0
    seconds: float = 0.0
    """How long a call may take."""


@dataclass
class SimulatedLake:
    """The lake itself: it outlives the processes that use it."""

    machine: Machine
    failures: Failures = field(default_factory=Failures)
    is_away: bool = False
    objects: dict[PurePosixPath, SimulatedFile] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=lambda: [Snapshot(0.0, {}, Committed())])
    deleted: list[PurePosixPath] = field(default_factory=list)
    """Files of which nothing is left: expiry deletes them."""
    holder: Process | None = None
    """Who has the lease."""
    resets: int = 0
    """Each ends the transactions under way."""
    wrong: list[str] = field(default_factory=list)
    commits: int = 0
    merges: int = 0

    @property
    def now(self) -> Snapshot:
        """The newest snapshot."""
        return self.snapshots[-1]

    def lake(self) -> Lake:
        """As a collector has it."""
        return Lake(SimulatedFiles(self), Path("/lake"))  # type: ignore[arg-type]

    def parts(self) -> LakeParts:
        """What a publisher is made of."""
        return LakeParts(
            lambda lake, name, scratch, system: SimulatedCatalog(self, lake, name, system),
            lambda connection, data, name, word: SimulatedWriter(self, name),  # type: ignore[arg-type,return-value]
            SimulatedBatches,
            lambda name, system: Compactor(name, system, KEEP_SECONDS, EXPIRE_SECONDS),
        )

    def call(self) -> None:
        """Before each call: it takes its time, and may be refused. The process may die meanwhile."""
        if self.failures.seconds:
            self.machine.sleep(self.machine.random.random() * self.failures.seconds)
        self.process.check()
        if self.is_away or self.machine.random.random() < self.failures.refused:
            raise self.machine.random.choice([OSError(28, "No space left on device"), LakeError("the store is away")])

    @property
    def process(self) -> Process:
        """The one that calls."""
        assert self.machine.current is not None
        return self.machine.current.process

    def offsets(self, table: str, collector: str) -> list[int]:
        """The offsets of the rows of a table that the lake has of a collector, as often as it has them."""
        return sorted(
            offset
            for path, rows in self.now.rows.items()
            if (self.objects[path].table, self.objects[path].collector) == (table, collector)
            for offset in rows
        )

    def apply(self, rows: Mapping[PurePosixPath, frozenset[int]], committed: Committed) -> None:
        """A commit."""
        kept = {path: offsets for path, offsets in rows.items() if offsets}
        self.deleted += [path for path in self.now.rows if path not in kept]
        self.snapshots.append(Snapshot(EPOCH + self.machine.seconds, kept, committed))
        self.commits += 1
        self.check()

    def check(self) -> None:
        """What holds after each commit: files are there, no row is twice, none is beyond its position."""
        seen: set[tuple[str, str, int]] = set()
        for path, offsets in self.now.rows.items():
            if path not in self.objects:
                self.wrong.append(f"{path} is listed and not there")
                continue
            file = self.objects[path]
            if not offsets <= file.offsets:
                self.wrong.append(f"{path} was replaced by another file")
            rows = {(file.table, file.collector, offset) for offset in offsets}
            if rows & seen:
                self.wrong.append(f"{path} has rows that another file has")
            seen |= rows
        for collector, position in self.now.positions.items():
            if beyond := [offset for _, name, offset in seen if name == collector and offset > position]:
                self.wrong.append(f"{collector}: rows {sorted(beyond)[:3]} are beyond its position {position}")


class SimulatedFiles:
    """The store of files, as a DataPath."""

    lake = "the simulated lake"
    root = "sim://lake"

    def __init__(self, lake: SimulatedLake) -> None:
        self._lake = lake

    def refresh(self) -> None:
        pass

    def authorize(self, connection: object) -> None:
        pass

    def check(self, known: bool) -> None:
        self._lake.call()

    def make(self) -> None:
        self._lake.call()

    def has_files(self) -> bool:
        return bool(self._lake.objects)

    def explain(self, text: str) -> str:
        return text


class SimulatedWriter:
    """What FileWriter offers."""

    def __init__(self, lake: SimulatedLake, collector: str) -> None:
        self._lake = lake
        self._collector = collector

    def write(self, table: str, rows: pa.Table, day: str, first: int, last: int) -> list[LakeFile]:
        # All jobs of a simulation are of one cluster.
        cluster = {"cluster": rows["job"][0].as_py().partition("/")[0]} if is_clustered(table) else {}
        places = {**cluster, "day": day}
        folder = PurePosixPath(MAIN, table, *(f"{name}={value}" for name, value in places.items()))
        path = folder / f"{self._collector}-{first}-{last}.parquet"
        return [self._put(table, path, rows)]

    def merge(
        self, table: str, folder: PurePosixPath, sources: Sequence[PurePosixPath], first: int, last: int
    ) -> LakeFile:
        offsets: set[int] = set()
        parts = []
        for source in sources:
            self._lake.call()
            if source not in self._lake.objects:
                self._lake.wrong.append(f"{source} is to be merged and is not there")
                raise OSError(2, "No such file", str(source))
            if offsets & self._lake.objects[source].offsets:
                self._lake.wrong.append(f"{source} is to be merged and has rows of another file")
            offsets |= self._lake.objects[source].offsets
            parts.append(self._lake.objects[source].rows)
        word = f"{self._lake.machine.random.randrange(2**32):08x}"
        self._lake.merges += 1
        return self._put(table, folder / f"{self._collector}-{first}-{last}-{word}.parquet", pa.concat_tables(parts))

    def _put(self, table: str, path: PurePosixPath, rows: pa.Table) -> LakeFile:
        self._lake.call()
        file = SimulatedFile(table, self._collector, places_of(table, path.parent), rows)
        self._lake.objects[path] = file
        self._lake.call()  # it is there, and the caller may not come to know
        return LakeFile(table, path, len(file.offsets), len(file.offsets))


class SimulatedBatches(BatchReader):
    """What is read of the database by SQL."""

    limit = 60

    def rows(self, batch: Batch) -> Iterator[tuple[str, pa.Table]]:
        yield from self._store.database.between(batch.first, batch.last)  # type: ignore[attr-defined]
        marks = self._store.database.marks_between(batch.first, batch.last)  # type: ignore[attr-defined]
        if marks.num_rows:
            yield MARKS, marks

    def _text_bytes(self, first: int, last: int) -> int:
        return 0

    def _end_of_commit(self, first: int, last: int) -> int:
        ends = [end for end in self._store.database.ends if end >= first]  # type: ignore[attr-defined]
        return max((end for end in ends if end <= last), default=min(ends, default=last))


class SimulatedCatalog(Catalog):
    """The catalog as one process has it: its own checks over tables in memory."""

    def __init__(self, lake: SimulatedLake, place: Lake, collector: str, system: System) -> None:
        self._lake = lake
        self._name = lake.lake().data.lake
        self._collector = collector
        self._disk = system.disk
        self._lease = _NoFile()  # type: ignore[assignment]
        self.data = place.data
        self.writer = self.last_writer = ""
        self.accepted = ()
        self.connection: Any = None

    def close(self) -> None:
        if self._lake.holder is self._lake.process:
            self._lake.holder = None

    @contextlib.contextmanager
    def _transaction(self, create: bool = False) -> Iterator[None]:
        """One holds the lease until the end of its transaction or of its connection."""
        lake, process = self._lake, self._lake.process
        lake.call()
        resets = lake.resets
        self._wait_for_lease()
        lake.holder = process
        self._rows = dict(lake.now.rows)
        self._new = self._copied(lake.now.committed)
        self._is_changed = False
        try:
            yield
            lake.call()
            if lake.resets != resets:
                raise LakeError("the connection was lost")
            lost = lake.machine.random.random() < lake.failures.lost
            if lost and lake.machine.random.random() < 0.5:
                raise LakeError("the connection was lost before the commit")
            if self._is_changed:
                lake.apply(self._rows, self._new)
            if lost:
                lake.call()
                raise LakeError("the connection was lost after the commit")
        finally:
            # The lease of a process that died has ended with its connection, and may be another one's.
            if lake.holder is process:
                lake.holder = None

    def _wait_for_lease(self) -> None:
        lake, machine = self._lake, self._lake.machine
        deadline = machine.seconds + LOCK_SECONDS
        while lake.holder is not None and lake.holder.lives:
            if machine.seconds >= deadline:
                raise LakeError("canceling statement due to lock timeout")
            machine.sleep(0.05)
            lake.process.check()

    @contextlib.contextmanager
    def reading(self) -> Iterator[dict[str, int]]:
        self._lake.call()
        yield dict(self._lake.now.positions)

    def files(self) -> list[tuple[str, PurePosixPath, int]]:
        self._lake.call()
        objects = self._lake.objects
        return [(objects[path].table, path, len(rows)) for path, rows in sorted(self._lake.now.rows.items())]

    def expire(self, before: float) -> None:
        """Forget snapshots, and delete the files that none of the others lists."""
        with self._transaction():
            lake = self._lake
            lake.snapshots = [one for one in lake.snapshots[:-1] if one.at >= before] + lake.snapshots[-1:]
            listed = {path for one in lake.snapshots for path in one.rows}
            for path in [path for path in lake.deleted if path not in listed]:
                lake.deleted.remove(path)
                lake.objects.pop(path, None)

    def _create_tables(self) -> None:
        pass

    def _describe(self, message: str, committed: Committed) -> None:
        self._new, self._is_changed = committed, True

    def _register(self, file: LakeFile) -> None:
        self._lake.call()
        self._rows[file.path] = self._lake.objects[file.path].offsets

    def _delete(self, within: RowRange) -> int:
        self._lake.call()
        found = 0
        for path, offsets in list(self._rows.items()):
            file = self._lake.objects[path]
            if (file.table, file.collector, file.places) == (within.table, within.collector, within.places):
                gone = {offset for offset in offsets if within.first <= offset <= within.last}
                self._rows[path] = offsets - gone
                found += len(gone)
        return found

    def _committed(self) -> Committed:
        self._lake.call()
        return self._copied(self._new)

    @staticmethod
    def _copied(committed: Committed) -> Committed:
        return Committed(dict(committed.positions), dict(committed.writers))


class _NoFile:
    """A lease without a file."""

    file = None
