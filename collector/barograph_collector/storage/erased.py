"""What is erased of a user: which rows of which tables, as conditions for a copy of the others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import duckdb

from barograph_collector.storage.text import literal

TABLE: Final = "erased"
NOBODY: Final = "erased"
"""In place of the user in rows that stay."""
# The names of jobs in an event.
_MENTIONED: Final = (
    "list_transform(regexp_extract_all(source || ' ' || detail, '[^\\s/\"'',;()]+/[^\\s/\"'',;()]+'),"
    " lambda x: rtrim(x, '.:'))"
)


class Erased(NamedTuple):
    """The jobs of a user. ended: those of which nothing more can come."""

    user: str
    jobs: Collection[str]
    ended: Collection[str]

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the temporary table of the jobs that `kept` names."""
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {TABLE} (job VARCHAR, ended BOOLEAN)")
        query = f"INSERT INTO {TABLE} SELECT job, job IN (SELECT unnest(?)) FROM (SELECT unnest(?) AS job)"
        connection.execute(query, [list(self.ended), list(self.jobs)])

    def kept(self, source: str, columns: Collection[str]) -> str:
        """A query for the rows of a table that stay. source: what to select from. columns: those of the table."""
        found = set(columns)
        if "job" in found:
            return f"SELECT * FROM {source} WHERE job NOT IN (SELECT job FROM {TABLE})"
        if "stream" in found:
            # The number up to which a producer was acknowledged: one that may still send needs it.
            of_job = "regexp_replace(stream, '/[^/]*$', '')"
            return f"SELECT * FROM {source} WHERE {of_job} NOT IN (SELECT job FROM {TABLE} WHERE ended)"
        if {"source", "detail"} <= found:
            jobs = f"(SELECT coalesce(list(job), []) FROM {TABLE})"
            return f"SELECT * FROM {source} WHERE NOT list_has_any({_MENTIONED}, {jobs})"
        if "editor" in found:
            named = f"CASE WHEN editor = {literal(self.user)} THEN '{NOBODY}' ELSE editor END"
            return f"SELECT * REPLACE ({named} AS editor) FROM {source}"
        return f"SELECT * FROM {source}"

    def changed(self, source: str, columns: Collection[str]) -> str:
        """A query for the number of rows that do not stay as they are; empty for tables in which there are none."""
        found = set(columns)
        if "editor" in found:
            return f"SELECT count(*) FROM {source} WHERE editor = {literal(self.user)}"
        if not found & {"job", "stream", "detail"}:
            return ""
        return f"SELECT (SELECT count(*) FROM {source}) - (SELECT count(*) FROM ({self.kept(source, columns)}))"
