"""The tables of the lake: those of the log, with the origin of each row, and without columns that follow."""

from __future__ import annotations

from typing import Final

from barograph_collector.storage.layout import LOG_COLUMNS

COLLECTOR: Final = "collector"
DAY: Final = "day"
"""The column that is in the names of directories, not in files."""


def columns(table: str) -> dict[str, str]:
    """Columns and types of a table of the lake."""
    return {COLLECTOR: "VARCHAR", DAY: "DATE", **LOG_COLUMNS[table]}


def is_of_jobs(table: str) -> bool:
    """Whether rows belong to a job."""
    return "job" in LOG_COLUMNS[table]
