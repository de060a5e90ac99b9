"""All or nothing on one DuckDB connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import duckdb


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit what the block does, or undo it where it raises."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        # After a failed commit there is nothing left to undo, and of an unusable database nothing can be.
        with contextlib.suppress(duckdb.Error):
            connection.rollback()
        raise
