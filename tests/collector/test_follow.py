"""The follower gives a log back in its own order, however it is paged and whenever it grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.protocol.tables import TABLES as COLUMNS
from barograph_agent.protocol.tables import Kind
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import Round
from barograph_collector.storage import pages
from barograph_collector.storage.days.retention import DAY_SECONDS
from barograph_collector.storage.store import Store
from barograph_lab.replay.log import ReplayLog
from helpers.clocks import calendar_at

TABLES = ["jobs", "blocks", "runs"]
VALUES = {Kind.NAME: "a", Kind.TEXT: "text " * 20, Kind.F64: 1.0, Kind.I64: 1, Kind.U64: 1}


class FakeLog:
    """A log of (offset, table) that may grow before any read, and that gives None where a read would wait."""

    def __init__(self, tables: list[str], growth: list[int]) -> None:
        self.rows = list(enumerate(tables, start=1))
        self.growth = growth
        self.visible = 0
        self.waits: list[float] = []

    def grow(self) -> None:
        self.visible = min(len(self.rows), self.visible + (self.growth.pop() if self.growth else len(self.rows)))

    def read(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        self.waits.append(seconds)
        self.grow()
        found = {
            table: [offset for offset, name in self.rows[: self.visible] if name == table and offset > after]
            for table, after in offsets.items()
        }
        if seconds and not any(found.values()):
            return None
        upto = min([self.visible, *(offsets[limit - 1] for offsets in found.values() if len(offsets) > limit)])
        rows = {table: [offset for offset in offsets if offset <= upto] for table, offsets in found.items()}
        return upto, {table: {"log_offset": np.array(offsets)} for table, offsets in rows.items() if offsets}


class StoredLog(FakeLog):
    """The same with the store of a collector, where a day has so many rows."""

    def __init__(self, tables: list[str], growth: list[int], directory: str, rows_a_day: int) -> None:
        super().__init__(tables, growth)
        self.log = ReplayLog(Path(directory))
        self.log._store.close()
        self.log._store = Store(
            Path(directory) / "log.duckdb", system=calendar_at(lambda: self.visible // rows_a_day * DAY_SECONDS)
        )

    def grow(self) -> None:
        before = self.visible
        super().grow()
        last, self.visible = self.visible, before
        for _, table in self.rows[before:last]:
            self.visible += 1
            self.log.put(
                table,
                1,
                {
                    name: "{}" if name in COLUMNS[table].json else VALUES[kind]
                    for name, kind in COLUMNS[table].columns.items()
                },
            )

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        self.grow()
        return self.log.follow(offsets, limit, seconds)

    def close(self) -> None:
        self.log.close()


@contextmanager
def stored(tables: list[str], growth: list[int], rows_a_day: int = 1000) -> Iterator[StoredLog]:
    with TemporaryDirectory() as directory, closing(StoredLog(tables, growth, directory, rows_a_day)) as log:
        yield log


def assert_in_order(log: FakeLog, growth: int, page: int) -> None:
    """Rows come once, and none after a round with one of a later table behind it."""
    tables = [table for _, table in log.rows]
    follower = Follower(log, TABLES, page)
    seen: list[int] = []
    for _ in range(growth + 2):
        for round_ in follower.poll():
            offsets = sorted(offset for _, columns in round_ for offset in columns["log_offset"].tolist())
            assert [table for table, _ in round_] == [t for t in TABLES if t in dict(round_)]
            assert not any(now < then for now in offsets for then in seen)
            seen += offsets
    assert sorted(seen) == list(range(1, len(tables) + 1))
    assert follower.delivered == {
        table: max((offset for offset, name in log.rows if name == table), default=0) for table in TABLES
    }


LOGS = st.lists(st.sampled_from(TABLES), max_size=60)
GROWTHS = st.lists(st.integers(0, 9), max_size=40)
PAGES = st.integers(1, 8)


@settings(max_examples=300, deadline=None)
@given(log=LOGS, growth=GROWTHS, page=PAGES)
def test_rows_come_once_and_in_the_order_of_the_log_however_they_are_cut_into_rounds(log, growth, page):
    assert_in_order(FakeLog(log, growth.copy()), len(growth), page)


@settings(max_examples=8, deadline=None)
@given(log=LOGS, growth=GROWTHS, page=PAGES, room=st.sampled_from([200, 3000, 10**7]))
def test_the_rounds_of_a_store_are_such_though_rows_are_committed_meanwhile_and_a_round_has_little_room(
    log, growth, page, room
):
    with pytest.MonkeyPatch.context() as patch, stored(log, growth.copy(), 3) as fake:
        patch.setattr(pages, "READ_BYTES", room)
        assert_in_order(fake, len(growth), page)


def test_a_round_has_of_each_table_what_is_beyond_its_own_offset():
    with stored(["jobs", "blocks", "runs", "jobs", "blocks"], []) as log:
        log.grow()
        upto, rows = log.follow({"jobs": 1, "blocks": 0, "runs": 3, "events": 0}, 10, 0.0) or (0, {})
        assert upto == 5
        assert {table: columns["log_offset"].tolist() for table, columns in rows.items()} == {
            "jobs": [4],
            "blocks": [2, 5],
        }
        # A table that is read from far ahead holds nobody up, and nothing of it is given before its offset.
        upto, rows = log.follow({"jobs": 0, "blocks": 4}, 1, 0.0) or (0, {})
        assert (upto, {table: columns["log_offset"].tolist() for table, columns in rows.items()}) == (1, {"jobs": [1]})


def test_what_was_given_is_not_given_again_and_an_empty_log_gives_no_round():
    follower = Follower(FakeLog(["jobs", "blocks"], []), TABLES)
    tables = [[table for table, _ in round_] for round_ in follower.poll()]
    assert tables == [["jobs", "blocks"]]
    assert list(follower.poll()) == []
    assert list(Follower(FakeLog([], []), TABLES).poll()) == []


@pytest.mark.parametrize("offsets", [{"jobs": 4, "blocks": 5, "runs": 0}, {"jobs": 0, "blocks": 2, "runs": 3}])
def test_it_continues_from_the_offsets_of_each_table_as_older_snapshots_have_them(offsets):
    with stored(["jobs", "blocks", "runs", "jobs", "blocks", "runs", "jobs"], []) as log:
        log.grow()
        follower = Follower(log, TABLES, page=1)
        follower.resume(offsets)
        seen = [(t, o) for round_ in follower.poll() for t, columns in round_ for o in columns["log_offset"].tolist()]
        assert seen == [(table, offset) for offset, table in log.rows if offset > offsets[table]]
