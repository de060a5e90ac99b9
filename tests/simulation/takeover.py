"""A log that is made again from the lake, and what its collector had that the lake did not.

`restore_from_lake` reads real files; this reads those of the stand-in, and decides as it does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from barograph_agent.system.system import System
from barograph_collector.backup.restore import JUMP, check_journal
from barograph_collector.lake.files import sealed_names
from barograph_collector.storage.days.partitions import Partition
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.layout import JOURNAL, OFFSET
from barograph_collector.storage.messages import replayed
from simulation.database import SimulatedDatabase, Tables
from simulation.lake import SimulatedData, SimulatedFiles, SimulatedLake


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
    entries = [replayed(frame) for _, frame in journal.replay(tables.marks.get(JOURNAL, 0), journal.last)]
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
    """What the lake has of a log as a log; None for nothing. journal: where that was apart. Raises as DataPath."""
    data = SimulatedData(lake)
    files = SimulatedFiles(lake, data, name)
    data.check(True)
    periods = files.periods()
    if not periods and not (journal is not None and journal.owner == name):
        return None
    found = Tables(name)
    found.sealed = position = periods[-1].last if periods else 0
    found.files = files.describe(sealed_names(data, name))  # type: ignore[arg-type]
    rows: defaultdict[str, list[pa.Table]] = defaultdict(list)
    firsts: dict[int, int] = {}
    for file in found.files:
        firsts[file.day] = min(file.first, firsts.get(file.day, file.first))
        rows[file.table].append(lake.objects[file.name(name).path])
    found.days = tuple(Partition(day, firsts[day]) for day in sorted(firsts))
    for table, parts in rows.items():
        found.rows[table] = [pa.concat_tables(parts).sort_by(OFFSET)]
    found.marks = {JOURNAL: 0, **files.marks(periods)}
    found.mark_rows = [(position, stream, seq) for stream, seq in found.marks.items()]
    found.head = position
    if journal is None:
        found.head += JUMP
    else:
        check_journal(journal, name, found.marks[JOURNAL])
    found.mark_rows.append((found.head, JOURNAL, found.marks[JOURNAL]))
    return found
