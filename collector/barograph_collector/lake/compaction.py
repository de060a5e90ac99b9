"""Compaction: many small files of one table, cluster and day become one, sorted by job; old ones are deleted later.

One merge is one transaction: the rows of the old files are deleted and the new file is registered. Readers that have
begun before see the old files, which stay for KEEP_SECONDS.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple, Self

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.files import FileWriter, LakeFile
from barograph_collector.lake.layout import RowRange, places_of

MIN_FILES: Final = 16
"""Files that are merged before their day has ended."""
SMALL_BYTES: Final = 2**24
"""Only smaller ones are merged then: so much is read and written again each time, at most."""
MAX_BYTES: Final = 2**27
"""Limit of a merged file, which takes half a minute. A job is found by row groups, in any file."""
KEEP_SECONDS: Final = 3600.0
"""How long files that were merged are still there for readers."""
EXPIRE_SECONDS: Final = 600.0


class Span(NamedTuple):
    """A file of this collector with rows of the offsets `first` to `last`."""

    first: int
    last: int
    size: int
    path: PurePosixPath

    @classmethod
    def of(cls, path: PurePosixPath, size: int, collector: str) -> Self | None:
        """From the name of a file; None for a file of others."""
        name, _, span = path.stem.partition("-")
        first, _, rest = span.partition("-")
        last = rest.partition("-")[0]  # a merged file has a word behind it
        if name != collector or not (first.isdigit() and last.isdigit()):
            return None
        return cls(int(first), int(last), size, path)


class Compactor:
    """Merges and expires the files of one collector; for the thread of its publisher. All methods raise LakeError."""

    def __init__(
        self, collector: str, system: System = SYSTEM, keep: float = KEEP_SECONDS, every: float = EXPIRE_SECONDS
    ) -> None:
        """keep: how long files that were merged stay. every: time between two deletions of such files. In seconds."""
        self.beside: Callable[[Callable[[], None]], None] = lambda work: work()
        """Does what takes long, and returns once that is done; raises as that."""
        self._collector = collector
        self._system = system
        self._keep, self._every = keep, every
        self._folders: dict[tuple[str, PurePosixPath], list[Span]] | None = None
        self._expired_at = float("-inf")

    def add(self, files: Iterable[LakeFile]) -> None:
        """Note files that were registered."""
        if self._folders is not None:
            for file in files:
                self._note(file.table, file.path, file.size)

    def forget(self) -> None:
        """After a failure: ask the lake which files it has."""
        self._folders = None

    def merge(self, catalog: Catalog, writer: FileWriter, today: str) -> int:
        """Merge files of one table, cluster and day, if there are enough; returns how many, 0 for none.

        today: the day of the next rows, as YYYY-MM-DD. Raises OSError and duckdb.Error too.
        """
        if self._folders is None:
            self._folders = {}
            for table, path, size in catalog.files():
                self._note(table, path, size)
        for (table, folder), spans in self._folders.items():
            ended = folder.name.partition("=")[2] != today
            if chosen := choose(spans, ended):
                self._merge(catalog, writer, table, folder, chosen)
                return len(chosen)
        return 0

    def expire(self, catalog: Catalog) -> None:
        """Delete files that were merged long enough ago, now and then."""
        if (now := self._system.clock.monotonic()) - self._expired_at < self._every:
            return
        self._expired_at = now
        catalog.expire(self._system.clock.now() - self._keep)

    def _note(self, table: str, path: PurePosixPath, size: int) -> None:
        span = Span.of(path, size, self._collector)
        if span is not None and self._folders is not None:
            insort(self._folders.setdefault((table, path.parent), []), span)

    def _merge(
        self, catalog: Catalog, writer: FileWriter, table: str, folder: PurePosixPath, spans: Sequence[Span]
    ) -> None:
        first, last = spans[0].first, spans[-1].last
        within = RowRange(table, self._collector, places_of(table, folder), first, last)
        written: list[LakeFile] = []
        sources = [span.path for span in spans]
        self.beside(lambda: written.append(writer.merge(table, folder, sources, first, last)))
        (file,) = written
        catalog.replace(within, file)
        assert self._folders is not None
        left = [span for span in self._folders[table, folder] if not first <= span.first <= last]
        self._folders[table, folder] = left
        self._note(table, file.path, file.size)


def choose(spans: Sequence[Span], ended: bool) -> list[Span]:
    """Neighbours to merge: of a day that has `ended` all, up to MAX_BYTES; before, MIN_FILES small ones, or as much.

    >>> of = lambda *sizes: [Span(10 * n, 10 * n + 9, size, PurePosixPath()) for n, size in enumerate(sizes)]
    >>> [span.first for span in choose(of(MAX_BYTES, 1, 2, 1), ended=True)]
    [10, 20, 30]
    >>> choose(of(1, 2, 1), ended=False)
    []
    >>> len(choose(of(*[SMALL_BYTES] * 9), ended=False)), len(choose(of(*[1] * 16), ended=False))
    (8, 16)
    """
    fewest, largest = (2, MAX_BYTES) if ended else (MIN_FILES, SMALL_BYTES)
    chosen: list[Span] = []
    for span in spans:
        is_full = sum(other.size for other in chosen) + span.size > MAX_BYTES
        if is_full or span.size > largest:
            if len(chosen) >= (2 if is_full else fewest):
                return chosen
            chosen = []
        if span.size <= largest:
            chosen.append(span)
    return chosen if len(chosen) >= fewest else []
