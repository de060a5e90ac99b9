"""A lake: a store of files and a catalog of several collectors. Both fail, as real ones do, from a seed.

The sealer, the order of what it writes and what it makes of names are the real ones; for Parquet and DuckLake's tables
there is a stand-in, and a test compares both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from barograph_collector.lake.files import LakeFiles, Marks, sealed_names
from barograph_collector.lake.place import Lake
from barograph_collector.storage.days.archive import FileName, SealedFile
from barograph_collector.storage.days.data_path import MarksName, sealed_periods
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET
from barograph_collector.storage.store import Store
from simulation.machine import Machine, Process


@dataclass
class Failures:
    """Probabilities. lost: of a write or a commit whose end is not known. refused: of a call of catalog or store."""

    lost: float = 0.0
    refused: float = 0.0
    seconds: float = 0.0
    """How long a call may take."""


@dataclass
class SimulatedLake:
    """The lake itself: it outlives the processes that use it. objects: bytes, marks or rows by path."""

    machine: Machine
    failures: Failures = field(default_factory=Failures)
    is_away: bool = False
    objects: dict[str, Any] = field(default_factory=dict)
    listed: dict[str, frozenset[FileName]] = field(default_factory=dict)
    """What the catalog lists, by log."""
    wrong: list[str] = field(default_factory=list)

    def lake(self) -> Lake:
        """As a collector has it."""
        return Lake(SimulatedData(self), Path("/lake"))  # type: ignore[arg-type]

    def parts(self) -> dict[str, Any]:
        """What a sealer is made of."""
        return {
            "new_catalog": lambda lake, scratch, system: SimulatedCatalog(self),
            "new_files": lambda connection, data, log: SimulatedFiles(self, data, log),
        }

    def call(self) -> None:
        """Before each call: it takes its time, and may be refused. The process may die meanwhile."""
        if self.failures.seconds:
            self.machine.sleep(self.machine.random.random() * self.failures.seconds)
        self.process.check()
        if self.is_away or self.machine.random.random() < self.failures.refused:
            raise self.machine.random.choice([OSError(28, "No space left on device"), LakeError("the store is away")])

    def put(self, path: str, content: Any) -> None:
        """Write an object: as a whole or not at all, and the caller may not come to know which."""
        self.call()
        if (lost := self.machine.random.random() < self.failures.lost) and self.machine.random.random() < 0.5:
            raise LakeError("the connection was lost before the object was there")
        self.objects[path] = content
        self.call()
        if lost:
            raise LakeError("the connection was lost after the object was there")

    @property
    def process(self) -> Process:
        """The one that calls."""
        assert self.machine.current is not None
        return self.machine.current.process

    def position(self, log: str) -> int:
        """How far it has the rows of a log."""
        return max((period.last for period in sealed_periods(Names(self)) if period.log == log), default=0)  # type: ignore[arg-type]

    def offsets(self, table: str, log: str) -> list[int]:
        """The offsets of the rows of a table that the sealed files of a log have, as often as they have them."""
        names = [name for name in sealed_names(Names(self), log) if name.table == table]  # type: ignore[arg-type]
        return sorted(offset for name in names for offset in self.objects[name.path][OFFSET].to_pylist())

    def check(self, log: str) -> None:
        """What is true once a period is sealed: no row is twice, and what the catalog lists is there."""
        for table in LOG_COLUMNS:
            offsets = self.offsets(table, log)
            if len(set(offsets)) < len(offsets):
                self.wrong.append(f"{log}: rows of {table} are twice")
        if missing := [name.path for name in self.listed.get(log, ()) if name.path not in self.objects]:
            self.wrong.append(f"{missing[0]} is listed and not there")


class Names:
    """The names of objects, without the failures of a call."""

    def __init__(self, lake: SimulatedLake) -> None:
        self._lake = lake

    def names(self, folder: str = "") -> list[str]:
        return [path for path in self._lake.objects if path.startswith(folder)]


class SimulatedData(Names):
    """The store of files, as a DataPath."""

    lake = "the simulated lake"
    root = "sim://lake"
    free_bytes = None

    def refresh(self) -> None:
        pass

    def authorize(self, connection: object) -> None:
        pass

    def check(self, known: bool) -> None:
        self._lake.call()

    def make(self) -> None:
        self._lake.call()

    def names(self, folder: str = "") -> list[str]:
        self._lake.call()
        return super().names(folder)

    def read(self, path: str) -> bytes:
        self._lake.call()
        return bytes(self._lake.objects.get(path, b""))

    def put(self, path: str, content: bytes) -> None:
        self._lake.put(path, content)

    def unlink(self, path: PurePosixPath | str) -> None:
        self._lake.call()
        self._lake.objects.pop(str(path), None)

    def explain(self, text: str) -> str:
        return text


class SimulatedFiles(LakeFiles):
    """Files with Arrow tables in place of Parquet."""

    def __init__(self, lake: SimulatedLake, data: SimulatedData, log: str) -> None:
        super().__init__(None, data, log)  # type: ignore[arg-type]
        self._lake = lake

    def marks_of(self, store: Store, first: int, last: int) -> Marks:
        return store.database.marks_between(first, last)  # type: ignore[attr-defined,no-any-return]

    def rows_of(self, store: Store, first: int, last: int) -> dict[str, int]:
        return {table: rows.num_rows for table, rows in store.database.between(first, last)}  # type: ignore[attr-defined]

    def write(self, store: Store, day: int, first: int, last: int) -> Iterator[tuple[SealedFile, int]]:
        for table, rows in store.database.between(first, last):  # type: ignore[attr-defined]
            name = FileName(table, day, self._log, first, last)
            self._lake.put(name.path, rows)
            yield self.describe([name])[0], rows.num_rows

    def write_marks(self, day: int, first: int, last: int, marks: Marks) -> None:
        self._lake.put(MarksName(self._log, first, last, str(day)).path, marks)
        self._lake.check(self._log)

    def marks(self, periods: Sequence[MarksName]) -> Marks:
        self._lake.call()
        found: Marks = {}
        for period in periods:
            found |= self._lake.objects[period.path]
        return found

    def describe(self, names: Sequence[FileName]) -> list[SealedFile]:
        found = []
        for name in names:
            rows: pa.Table = self._lake.objects[name.path]
            jobs = rows["job"].to_pylist() if "job" in rows.column_names else [""]
            about = len(LOG_COLUMNS[name.table]), rows.num_rows, min(jobs), max(jobs)
            found.append(SealedFile(name.table, name.day, name.first, name.last, 0, *about))
        return sorted(found)


class SimulatedCatalog:
    """What Catalog offers to a sealer."""

    connection = None

    def __init__(self, lake: SimulatedLake) -> None:
        self._lake = lake

    def sync(self, log: str, files: Collection[FileName]) -> None:
        """One transaction."""
        self._lake.call()
        for name in files:
            if name.path not in self._lake.objects:
                self._lake.wrong.append(f"{name.path} is registered and not there")
        if (
            lost := self._lake.machine.random.random() < self._lake.failures.lost
        ) and self._lake.machine.random.random() < 0.5:
            raise LakeError("the connection was lost before the commit")
        self._lake.listed[log] = frozenset(files)
        self._lake.call()
        if lost:
            raise LakeError("the connection was lost after the commit")

    def close(self) -> None:
        pass
