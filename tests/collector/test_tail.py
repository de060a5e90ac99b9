"""The tail: what followers read before it is in the database, and that it is the same afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.ingest import writer
from barograph_collector.query.reader import UNSETTLED, answer_read
from barograph_collector.query.sql import Querier
from barograph_collector.server import Collector
from barograph_collector.storage.layout import JOURNAL
from barograph_collector.storage.messages import replayed
from barograph_collector.storage.rows import Entry
from barograph_collector.storage.store import Store
from helpers.log import Producer, blocks, collector_on, wait_until

FROM_START = {"blocks": 0, "events": 0, "runs": 0}
LIMIT = 10_000


def entry(table: str, rows: int, first: int) -> Entry:
    if table == "blocks":
        values: dict[str, Any] = blocks(rows, first, job=f"test/{first}.0.0")
    else:
        values = {
            name: [f"{name}/{first + i}" for i in range(rows)] if kind.is_text else np.arange(rows) + first
            for name, kind in TABLES[table].columns.items()
        }
    return replayed(wire.encode(wire.append("s", 1, table, rows, values)))


def plain(found: tuple[int, dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    upto, tables = found
    return upto, {t: {name: np.asarray(v).tolist() for name, v in columns.items()} for t, columns in tables.items()}


@pytest.fixture
def entries() -> list[Entry]:
    random = np.random.default_rng(3)
    tables = random.choice(["blocks", "events", "sites"], 12)
    return [entry(str(table), int(random.integers(1, 5)), 10 * at) for at, table in enumerate(tables)]


def test_rounds_of_the_tail_are_those_of_the_database_afterwards(tmp_path: Path, entries: list[Entry]) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        store.commit(entries[:4], {JOURNAL: 4})
        committed = store.head
        store.tail.add(entries[4:9])
        store.tail.add(entries[9:])
        places = range(committed, committed + sum(one.rows for one in entries[4:]) + 1)
        asked = [dict.fromkeys(FROM_START, after) for after in places] + [{"runs": 0}, {"events": committed + 3}]
        before = [plain(store.read_round(offsets, LIMIT)) for offsets in asked]
        news = [store.has_rows(offsets) for offsets in asked]
        assert store.commit(entries[4:], {JOURNAL: 12}) == places[-1]
        assert [plain(store.read_round(offsets, LIMIT)) for offsets in asked] == before
        assert [store.has_rows(offsets) for offsets in asked] == news
        assert news[0]
        assert not news[-2]


def test_a_round_from_before_the_tail_ends_where_the_database_ends(tmp_path: Path, entries: list[Entry]) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        committed = store.commit(entries[:4], {JOURNAL: 4})
        store.tail.add(entries[4:])
        upto, _ = store.read_round(FROM_START, LIMIT)
        assert upto == committed
        upto, _ = store.read_round(dict.fromkeys(FROM_START, committed), LIMIT)
        assert upto == committed + sum(one.rows for one in entries[4:])


def test_an_answer_without_the_newest_rows_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        assert answer_read(store, lambda commits: False, wire.Read(1, "blocks", 0)).note == UNSETTLED
        assert Querier(store, lambda: False).answer(wire.Sql(2, "SELECT 1")).note == UNSETTLED


def test_few_rows_are_read_before_they_are_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SMALL_BATCH_SECONDS", 1e6)
    path = tmp_path / "log.duckdb"
    with collector_on(path) as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        producer.append(1, "blocks", 1, blocks(1))
        wait_until(lambda: collector.counters.rows["blocks"] == 1, "the first row after a pause is committed")
        for seq, rows in ((2, 5), (3, 7)):
            after = head_of(collector)
            producer.append(seq, "blocks", rows, blocks(rows, first=after))
            producer.send(wire.Read(seq, "", 0, LIMIT, tables={"blocks": after}, seconds=50.0))
            answer = rows_of(producer)
            assert (answer.rows, answer.next_offset) == (rows, after + rows)
            assert collector.counters.rows["blocks"] == 1
        # A page of one table has every acknowledged row.
        producer.send(wire.Read(9, "blocks", 0))
        assert rows_of(producer).rows == 13
    with Store(path) as store:
        assert store.head == 13


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Collector, Producer]]:
    """A collector that has committed one row, and commits small batches and tells news only where it must."""
    monkeypatch.setattr(writer, "SMALL_BATCH_SECONDS", 1e6)
    monkeypatch.setattr(writer, "NEWS_SECONDS", 1e6)
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        producer.append(1, "blocks", 1, blocks(1))
        wait_until(lambda: collector.counters.rows["blocks"] == 1, "the first row after a pause is committed")
        yield collector, producer


def test_the_end_of_a_run_is_told_at_once(slow: tuple[Collector, Producer]) -> None:
    collector, producer = slow
    run = {name: "x" if kind.is_text else 1 for name, kind in TABLES["runs"].columns.items()}
    producer.append(2, "blocks", 1, blocks(1))
    producer.append(3, "runs", 1, run)
    producer.send(wire.Read(4, "", 0, LIMIT, tables={"runs": 0}, seconds=50.0))
    assert rows_of(producer).next_offset == 3
    assert collector.counters.rows["runs"] == 0


def rows_of(producer: Producer) -> wire.Rows:
    """The next answer to a read, with acknowledgements before it."""
    while not isinstance(message := producer.receive(object), wire.Rows):  # type: ignore[type-var]
        assert isinstance(message, wire.Ack)
    return message


def head_of(collector: Any) -> int:
    """The offset of the last row, committed or not."""
    return max(collector.store.tail.heads.values())
