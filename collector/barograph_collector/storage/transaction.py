"""A transaction on a DuckDB connection, as a context manager."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import duckdb


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit at the end of the block, or roll back where it raises."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        # Fails after a failed commit, which has rolled back, and where the database is unusable.
        with contextlib.suppress(duckdb.Error):
            connection.rollback()
        raise
