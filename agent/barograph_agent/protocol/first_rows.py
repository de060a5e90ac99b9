"""Rows that count where several sidecars of a run have written them: the first of each job in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barograph_agent.protocol.wire import Column

TABLES: Final = ("jobs", "works")
MAX_JOBS: Final = 100_000


class FirstRows:
    """Filter of TABLES, as their rows are read in the order of the log. It knows the latest MAX_JOBS of each."""

    def __init__(self) -> None:
        self._read: dict[str, dict[str, None]] = {table: {} for table in TABLES}

    def of(self, table: str, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        """The rows of jobs that had none before; all rows of other tables.

        >>> first = FirstRows()
        >>> first.of("jobs", {"job": ["a", "b", "a"], "host": ["n1", "n1", "n2"]})
        {'job': ['a', 'b'], 'host': ['n1', 'n1']}
        >>> first.of("jobs", {"job": ["b"], "host": ["n2"]})
        {'job': [], 'host': []}
        """
        if (read := self._read.get(table)) is None:
            return columns
        rows = []
        for row, job in enumerate(columns["job"]):
            if job not in read:
                read[str(job)] = None
                rows.append(row)
        while len(read) > MAX_JOBS:
            del read[next(iter(read))]
        if len(rows) == len(columns["job"]):
            return columns
        return {
            name: [values[row] for row in rows] if isinstance(values, list) else values[rows]
            for name, values in columns.items()
        }
