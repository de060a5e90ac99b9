"""What views read of jobs, as SQL over a log in memory."""

from __future__ import annotations

import math

import duckdb
import pytest

from barograph.views import queries
from barograph_agent.protocol.tables import TABLES

NOW = 1_700_000_000.0
NUMBERS = {"time", "alarmed_at", "final", "log_offset", "fitted_at", "class_id"}


class MemoryLog:
    """Tables of the log in which a row has a few columns."""

    def __init__(self) -> None:
        self.db, self.offset = duckdb.connect(), 0
        for table in ("jobs", "scores", "runs", "predictions", "assignments", "bands"):
            names = dict.fromkeys(["log_offset", "ended_at", *TABLES[table].columns])
            columns = ", ".join(f'"{name}" {"DOUBLE" if name in NUMBERS else "TEXT"}' for name in names)
            self.db.execute(f"CREATE TABLE {table} ({columns})")

    def put(self, table: str, **row: object) -> None:
        self.offset += 1
        row = {"log_offset": self.offset, **row}
        values = ", ".join(f'? AS "{name}"' for name in row)
        self.db.execute(f"INSERT INTO {table} BY NAME SELECT {values}", [*row.values()])


@pytest.mark.parametrize(
    ("rows", "final", "shown"),
    [
        ([("slow", 10.0), ("inconclusive", math.nan)], 0, []),
        ([("slow", 10.0), ("slow", 20.0), ("slow", 10.0)], 0, [10.0]),
        ([("slow", 10.0), ("slow", 20.0)], 0, [20.0, 10.0]),
        ([("slow", 10.0), ("slow", 20.0), ("slow", 10.0)], 1, [20.0, 10.0]),
    ],
)
def test_an_alarm_that_was_taken_back_is_shown_no_more(rows, final, shown):
    log = MemoryLog()
    log.put("jobs", job="a", user="u", app="app", cluster="lab")
    for place, (state, alarmed_at) in enumerate(rows):
        is_last = place == len(rows) - 1
        log.put("scores", job="a", state=state, alarmed_at=NOW + alarmed_at, time=NOW + place, final=final * is_last)
    answer = log.db.sql(queries.alarms(NOW + 50).text).fetchall()
    assert [row[6] - NOW for row in answer] == shown


def test_a_job_is_of_its_group_from_its_assignment_on():
    log = MemoryLog()
    log.put("jobs", job="a", workload="lab/app@2x1")
    assert log.db.sql(queries.job("a")).fetchone()[1] == "lab/app@2x1"
    log.put("assignments", job="a", workload="lab/app@2x1+0a1b2c")
    assert log.db.sql(queries.job("a")).fetchone()[1] == "lab/app@2x1+0a1b2c"


@pytest.mark.parametrize(("fitted", "shown"), [([10, 20, 30], 20), ([30, 40], 30), ([], None)])
def test_a_band_is_the_last_one_before_the_end_of_a_job_or_else_the_first_after_it(fitted, shown):
    log = MemoryLog()
    for at in fitted:
        row = {"workload": "w", "class_id": 7, "kind": "interval", "method": "tracked", "runs": str(at)}
        log.put("bands", fitted_at=float(at), **row)
    found = log.db.sql(queries.band("w", 7, 25.0)).fetchall()
    assert [int(row[2]) for row in found] == ([shown] if shown else [])
