"""The follower gives a log back in its own order, however it is paged and whenever it grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_collector.client.follow import Follower

TABLES = ["jobs", "blocks", "runs"]


@dataclass
class Page:
    columns: dict[str, Any]
    rows: int
    next_offset: int


class FakeLog:
    """A log of (offset, table) that may grow between any two reads."""

    def __init__(self, tables: list[str], growth: list[int]) -> None:
        self.rows = list(enumerate(tables, start=1))
        self.growth = growth
        self.visible = 0

    def read(self, table: str, after: int, limit: int = 10, job: str = "") -> Page:
        self.visible = min(len(self.rows), self.visible + (self.growth.pop() if self.growth else len(self.rows)))
        found = [offset for offset, name in self.rows[: self.visible] if name == table and offset > after][:limit]
        return Page({"offset": np.array(found, dtype=np.int64)}, len(found), found[-1] if found else after)


@settings(max_examples=300, deadline=None)
@given(
    log=st.lists(st.sampled_from(TABLES), max_size=60),
    growth=st.lists(st.integers(0, 9), max_size=40),
    page=st.integers(1, 8),
)
def test_rows_come_once_and_none_after_a_round_with_one_of_a_later_table_behind_it(log, growth, page):
    fake = FakeLog(log, growth)
    follower = Follower(fake, TABLES, page)
    seen: list[int] = []
    for _ in range(len(growth) + 2):
        for round_ in follower.poll():
            offsets = sorted(offset for _, columns in round_ for offset in columns["offset"].tolist())
            assert [table for table, _ in round_] == [t for t in TABLES if t in dict(round_)]
            assert not too_late(log, seen, offsets)
            seen += offsets
    assert sorted(seen) == list(range(1, len(log) + 1))


def too_late(log: list[str], seen: list[int], offsets: list[int]) -> bool:
    """Whether a row comes only now though one behind it, of a table that may refer to it, came in an earlier round."""
    rank = {table: number for number, table in enumerate(TABLES)}
    return any(now < then and rank[log[now - 1]] < rank[log[then - 1]] for now in offsets for then in seen)


def test_what_was_given_is_not_given_again_and_an_empty_log_gives_no_round():
    follower = Follower(FakeLog(["jobs", "blocks"], []), TABLES)
    tables = [[table for table, _ in round_] for round_ in follower.poll()]
    assert tables == [["jobs"], ["blocks"]]
    assert list(follower.poll()) == []
    assert list(Follower(FakeLog([], []), TABLES).poll()) == []
