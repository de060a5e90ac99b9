"""Roll-up of the blocks of a day: one row per class, hour and workload, with the moments of all its intervals.

Blocks hold sums, so the rolled-up count, sum, sum of squares and sum of cubes are exact, as are minimum and maximum. An
hour whose blocks arrived on two days has two rows, which add up. Jobs without a row in `jobs` have workload ''.
"""

from __future__ import annotations

from typing import Final

import duckdb

from barograph_collector.storage.layout import CLASS_HOURS
from barograph_collector.storage.partitions import Partition
from barograph_collector.storage.transaction import transaction

HOUR_SECONDS: Final = 3600


def roll_up(connection: duckdb.DuckDBPyConnection, day: Partition) -> None:
    """Roll up one day and mark it as rolled up, in one transaction. Raises duckdb.Error."""
    with transaction(connection):
        connection.execute(
            f"""
            INSERT INTO "{CLASS_HOURS}"
            SELECT floor(ended_at / {HOUR_SECONDS}) * {HOUR_SECONDS} AS hour,
                   coalesce(workload, '') AS workload, class_id,
                   count(DISTINCT job), sum(count), sum(sum_seconds), sum(sum_squares), sum(sum_cubes),
                   min(min_seconds), max(max_seconds)
            FROM "{day.table("blocks")}"
            LEFT JOIN (SELECT job, any_value(workload) AS workload FROM jobs GROUP BY job) USING (job)
            GROUP BY ALL
            """
        )
        connection.execute("UPDATE partitions SET rolled_up = true WHERE day = ?", [day.day])
    day.rolled_up = True
