"""The tables of the lake: those of the log, with the origin of each row, and without columns that follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import unquote

from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET, OWN_COLUMNS, STREAMS
from barograph_collector.storage.text import literal

COLLECTOR: Final = "collector"
CLUSTER: Final = "cluster"
DAY: Final = "day"
MAIN: Final = "main"
"""The directory of the tables: DuckLake's name of their schema."""
MARKS: Final = "marks"
TABLES: Final = {**LOG_COLUMNS, MARKS: OWN_COLUMNS[STREAMS]}
"""Columns of what the log has of each table. Marks are those of the streams whose rows a batch has: with them another
collector can go on where this one was."""


def is_clustered(table: str) -> bool:
    """Whether rows belong to a cluster: those of a job do, whose name begins with it."""
    return "job" in TABLES[table]


def columns(table: str) -> dict[str, str]:
    """Columns and types of a table of the lake."""
    # `jobs` has a column of this name.
    cluster = {CLUSTER: "VARCHAR"} if is_clustered(table) else {}
    return {COLLECTOR: "VARCHAR", **cluster, DAY: "DATE", **TABLES[table]}


def partition(table: str) -> list[str]:
    """The columns by which the files of a table are kept apart: they are in the names of directories, not in files."""
    return [CLUSTER, DAY] if is_clustered(table) else [DAY]


def places_of(table: str, folder: PurePosixPath) -> dict[str, str]:
    """The values of the columns that partition a table, from the directory of a file."""
    parts = folder.relative_to(MAIN, table).parts
    return {name: unquote(value) for name, _, value in (part.partition("=") for part in parts)}


class RowRange(NamedTuple):
    """The rows of one collector in one directory of a table, of offsets from `first` to `last`."""

    table: str
    collector: str
    places: Mapping[str, str]
    first: int = 1
    last: int = 2**63 - 1

    @property
    def condition(self) -> str:
        """As SQL."""
        parts = [
            f"{name} = {literal(value)}" for name, value in ({COLLECTOR: self.collector} | dict(self.places)).items()
        ]
        return " AND ".join([*parts, f'"{OFFSET}" BETWEEN {self.first} AND {self.last}'])
