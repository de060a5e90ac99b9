"""Rows of jobs that were open at a start come once, in their order, and after those of new jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_collector.client.backfill import Backfill
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import LogUnavailable, Round
from barograph_collector.daemon.source import LogSource

TABLES = ["jobs", "blocks", "runs"]


class Row(NamedTuple):
    table: str
    job: str
    offset: int


class GrowingLog:
    """A log that grows before each read, and may not answer it."""

    endpoint = "tcp://a:1"

    def __init__(self, rows: list[Row], visible: int, growth: list[int]) -> None:
        self.rows, self.visible, self.growth = rows, visible, growth
        self.connections = 1
        self.is_away = False
        self.reads: list[tuple[int, float]] = []
        """The lowest offset of each read, and how long it waits."""

    def identity(self) -> str:
        return "log"

    def close(self) -> None:
        pass

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        if self.is_away:
            raise LogUnavailable("away")
        if max(offsets.values()) >= 2**62:
            return 2**62, {}
        self.visible = min(len(self.rows), self.visible + (self.growth.pop() if self.growth else len(self.rows)))
        self.reads.append((min(offsets.values()), seconds))
        found = {
            table: [row for row in self.rows[: self.visible] if row.table == table and row.offset > after]
            for table, after in offsets.items()
        }
        upto = min([self.visible, *(rows[limit - 1].offset for rows in found.values() if len(rows) > limit)])
        cut = {table: [row for row in rows if row.offset <= upto] for table, rows in found.items()}
        if seconds and not any(cut.values()):
            return None
        return upto, {
            table: {"job": [row.job for row in rows], "log_offset": np.array([row.offset for row in rows])}
            for table, rows in cut.items()
            if rows
        }


class Daemon:
    """What reads a log from an offset on, and jobs that were open then from another one."""

    def __init__(self, log: GrowingLog, head: int, opened: Mapping[str, int], page: int) -> None:
        """opened: the jobs of the backfills, and after which offset each begins."""
        self.source = LogSource(log, TABLES)  # type: ignore[arg-type]
        self.found: list[Row] = []

        def prepare(ready: Any) -> None:
            self.source.follower = Follower(log, TABLES, page)  # type: ignore[arg-type]
            self.source.follower.offsets = dict.fromkeys(TABLES, head)
            for jobs, begin in opened.items():
                backfill = Backfill(log, dict.fromkeys(["blocks", "runs"], begin), jobs)  # type: ignore[arg-type]
                backfill.follower._page = page
                self.source.backfills.append(backfill)

        self.source.prepare(prepare)

    def cycle(self) -> None:
        self.source.prepare(lambda source: None)
        for rows in self.source.poll():
            self.found += [
                Row(table, job, int(offset))
                for table, columns in rows
                for job, offset in zip(columns["job"], columns["log_offset"], strict=True)
            ]


@given(
    rows=st.lists(st.tuples(st.sampled_from(TABLES), st.sampled_from("abcd")), min_size=1, max_size=60),
    head=st.integers(0, 60),
    begins=st.dictionaries(st.sampled_from("abc"), st.integers(0, 60), min_size=1),
    growth=st.lists(st.integers(0, 9), max_size=30),
    page=st.integers(1, 9),
)
def test_each_row_comes_once_and_those_of_a_job_in_their_order(
    rows: list[tuple[str, str]], head: int, begins: dict[str, int], growth: list[int], page: int
) -> None:
    log_rows = [Row(table, job, number) for number, (table, job) in enumerate(rows, start=1)]
    head = min(head, len(rows))
    begins = {job: min(begin, head) for job, begin in begins.items()}
    log = GrowingLog(log_rows, head, growth)
    daemon = Daemon(log, head, begins, page)
    for _ in range(200):
        daemon.cycle()
        if not daemon.source.is_behind and log.visible == len(rows):
            break
    daemon.cycle()
    assert not daemon.source.is_behind
    of_open = [row for row in log_rows if row.table != "jobs" and row.offset > begins.get(row.job, len(rows))]
    others = [row for row in log_rows if (row.table == "jobs" or row.job not in begins) and row.offset > head]
    assert sorted(daemon.found, key=lambda row: row.offset) == sorted(of_open + others, key=lambda row: row.offset)
    for job in "abcd":
        for table in TABLES:
            offsets = [row.offset for row in daemon.found if (row.table, row.job) == (table, job)]
            assert offsets == sorted(offsets)
    # A round ends at one offset for all tables, so the end of a job never comes before its blocks.
    for job in begins:
        ends = [place for place, row in enumerate(daemon.found) if row.job == job and row.table == "runs"]
        for place in ends:
            before = {row.offset for row in daemon.found[: place + 1]}
            end = daemon.found[place].offset
            assert {row.offset for row in of_open if row.job == job and row.offset < end} <= before


def test_new_rows_come_before_older_ones_and_nothing_waits_until_all_are_read() -> None:
    rows = [Row("blocks", "a", number) for number in range(1, 31)] + [Row("blocks", "new", 31)]
    log = GrowingLog(rows, 31, [])
    daemon = Daemon(log, 30, {"a": 0}, 10)
    daemon.cycle()
    assert [row.job for row in daemon.found] == ["new"] + ["a"] * 10
    assert daemon.source.is_behind
    while daemon.source.is_behind:
        daemon.cycle()
    assert daemon.found == [rows[-1], *rows[:-1]]
    assert {seconds for _, seconds in log.reads} == {0.0}
    log.reads.clear()
    daemon.cycle()
    assert log.reads == [(31, 5.0)]


@pytest.mark.parametrize("lane", ["new", "older"])
def test_a_collector_that_goes_away_meanwhile_is_read_on_where_it_was(lane: str) -> None:
    rows = [Row("blocks", "ab"[number % 2], number) for number in range(1, 41)]
    log = GrowingLog(rows, 20, [0, 0, 0, 2, 0])
    daemon = Daemon(log, 20, {"a": 0}, 3)
    daemon.cycle()
    log.is_away = True
    with pytest.raises(LogUnavailable, match="away"):
        daemon.cycle()
    assert not daemon.source.is_behind, "what cannot be read keeps no processor busy"
    log.is_away = False
    while daemon.source.is_behind or log.visible < 40:
        daemon.cycle()
    daemon.cycle()
    expected = [row for row in rows if row.job == "a" or row.offset > 20]
    assert sorted(daemon.found, key=lambda row: row.offset) == expected
