"""What a report asks of the log: rows of one SELECT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barograph.commands.sql import rows_of
from barograph_collector.client.log_reader import LogReader
from barograph_collector.query.sql import ROWS_LIMIT, SECONDS_LIMIT

Row = dict[str, Any]


class NothingKnown(LookupError):
    """An application or a job that the log does not know. The text names it."""


class ReportLog:
    """Rows as maps. Names that go into a query are identifiers, which hold no quote."""

    def __init__(self, reader: LogReader) -> None:
        """Raises LogUnavailable."""
        # A query may take its time; whether anybody is there at all shows sooner.
        reader.read("jobs", -1, 1)
        self._reader = reader

    def rows(self, query: str) -> list[Row]:
        """The rows of a SELECT, ROWS_LIMIT at most. Raises LogUnavailable and ReadRefused."""
        found: list[Row] = rows_of(self._reader.query(query, ROWS_LIMIT, SECONDS_LIMIT)).to_pylist()
        return found

    def sites(self, class_ids: Sequence[int]) -> dict[int, Row]:
        """The site of each class, as it was told of last."""
        ids = ", ".join(map(str, class_ids)) or "NULL"
        known = self.rows(
            f"""SELECT * FROM sites WHERE class_id IN ({ids})
            QUALIFY row_number() OVER (PARTITION BY class_id ORDER BY "offset" DESC) = 1"""
        )
        unknown = {"before": "unknown", "at": "unknown", "operation": "unknown"}
        return dict.fromkeys(class_ids, unknown) | {row["class_id"]: row for row in known}
