"""A log that is made again from the lake, and what its collector had that the lake did not.

`restore_from_lake` reads real files; this reads those of the stand-in, and decides as it does.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from barograph_agent.system.system import System
from barograph_collector.backup.from_lake import check_journal
from barograph_collector.backup.restore import JUMP
from barograph_collector.lake.compaction import Span
from barograph_collector.lake.layout import DAY, MARKS, places_of
from barograph_collector.storage.days.partitions import Partition
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.layout import JOURNAL, OFFSET
from barograph_collector.storage.messages import replayed
from simulation.database import SimulatedDatabase, Tables
from simulation.lake import SimulatedCatalog, SimulatedLake


@dataclass
class Loss:
    """What may be lost with disks: rows that the lake lacks. What was not acknowledged of it is sent again."""

    intervals: Counter[str] = field(default_factory=Counter)
    """By job."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows that were counted as dropped, in rows of `events` and `runs`, by the name of the stream or job."""
    touched: set[str] = field(default_factory=set)
    """Jobs with any such row."""
    ended: set[str] = field(default_factory=set)
    """Jobs with a row of `runs` among them."""

    def add(self, rows: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Add rows by table."""
        for columns in rows.values():
            self.touched.update(columns.get("job", ()))
        for job, count in zip(rows["blocks"]["job"], rows["blocks"]["count"], strict=True):
            self.intervals[job] += count
        for job, count in zip(rows["runs"]["job"], rows["runs"]["dropped"], strict=True):
            self.dropped[job] += count
            self.ended.add(job)
        events = rows["events"]
        for source, kind, count in zip(events["source"], events["kind"], events["rows"], strict=True):
            if kind == "dropped":
                self.dropped[source] += count


def unpublished(tables: Tables, journal: Journal, position: int) -> dict[str, dict[str, list[Any]]]:
    """The rows that a collector had and the lake has not, as columns by table: of the database and of the journal.

    position: that of the lake.
    """
    later = Tables()
    database = SimulatedDatabase(later)
    entries = [replayed(frame).entry for _, frame in journal.replay(tables.marks.get(JOURNAL, 0), journal.last)]
    if entries:
        database.commit(entries, {}, 0)
    found = {}
    for table, parts in tables.rows.items():
        columns = later.all(table)
        for part in parts:
            for row in part.to_pylist():
                if row[OFFSET] > position:
                    for name, values in columns.items():
                        values.append(row[name])
        found[table] = columns
    return found


def taken_over(lake: SimulatedLake, name: str, journal: Journal | None, system: System) -> Tables | None:
    """What the lake has of a log as a log; None if it has nothing. journal: where that was apart. Raises as Catalog."""
    catalog = SimulatedCatalog(lake, lake.lake(), name, system)
    try:
        catalog.check(1)
        catalog.open(0)
        with catalog.reading() as positions:
            position = positions.get(name, 0 if journal is not None and journal.owner == name else None)
        if position is None:
            return None
        rows: defaultdict[str, list[pa.Table]] = defaultdict(list)
        firsts: dict[int, int] = {}
        for table, path, size in catalog.files():
            if (span := Span.of(path, size, name)) is not None:
                day = (datetime.date.fromisoformat(places_of(table, path.parent)[DAY]) - EPOCH).days
                firsts[day] = min(span.first, firsts.get(day, span.first))
                rows[table].append(lake.objects[path].rows)
    finally:
        catalog.close()
    found = Tables(name)
    found.days = tuple(Partition(day, firsts[day]) for day in sorted(firsts))
    for table, parts in rows.items():
        if table != MARKS:
            found.rows[table] = [pa.concat_tables(parts).sort_by(OFFSET)]
    for mark in pa.concat_tables(rows[MARKS]).to_pylist() if MARKS in rows else ():
        found.mark_rows.append((mark[OFFSET], mark["stream"], mark["seq"]))
    for _, stream, seq in found.mark_rows:
        found.marks[stream] = max(seq, found.marks.get(stream, 0))
    last = found.marks.setdefault(JOURNAL, 0)
    found.head = position
    if journal is None:
        found.head += JUMP
    else:
        check_journal(journal, name, last)
    found.mark_rows.append((found.head, JOURNAL, last))
    return found
