"""A collector that is lost is made again from the lake: what was published is there once, agents go on behind it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.protocol.tables import TABLES
from barograph_collector.backup.archive import BackupError
from barograph_collector.backup.from_lake import restore_from_lake
from barograph_collector.backup.restore import JUMP
from barograph_collector.lake.batches import BatchReader
from barograph_collector.lake.lease import CATALOG_FILE
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import Publisher
from barograph_collector.server import Collector
from barograph_collector.storage import database
from barograph_collector.storage.connection import StoreError
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.layout import DAILY, OFFSET
from barograph_collector.storage.store import LOG, Store, put_journal
from helpers.clocks import calendar_at
from helpers.lakes import alike, any_rows, entry, loaded, logged, opened, rows_of
from helpers.log import Producer, blocks, collector_on

FIRST = 20_000
HOURS = "SELECT hour, class_id, sum(count)::BIGINT, sum(sum_seconds) FROM class_hours GROUP BY ALL ORDER BY ALL"
"""Not by workload: what was rolled up early knew less of it."""


def fill(store: Store, seed: int) -> None:
    """A commit with rows of every table, of two streams."""
    numbers = np.random.default_rng(seed)
    entries = [any_rows(table, int(numbers.integers(1, 5)), numbers) for table in TABLES]
    store.commit(entries, {"lab/1.0.0/n1": seed, f"lab/{seed}.0.0/n1": 7, "": seed})


def drained(publisher: Publisher) -> None:
    while publisher.publish() or publisher.compact() or publisher.archive():
        pass


def publish(store: Store, lake: Lake) -> None:
    """All that a lake may have of a log."""
    publisher = Publisher(store, lake)
    drained(publisher)
    publisher.close()


def all_rows(store: Store) -> list[list[tuple[object, ...]]]:
    """The rows of each table, those of archived days too."""
    found = []
    for table in TABLES:
        rows: list[tuple[object, ...]] = []
        after = 0
        while (page := store.read(table, after, 100_000)).rows:
            rows += zip(*(page.columns[name] for name in (OFFSET, *TABLES[table].columns)), strict=True)
            after = page.next_offset
        found.append(rows)
    return found


def test_what_the_lake_has_of_a_log_becomes_a_log_again_with_its_days_and_marks(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    today = FIRST
    system = calendar_at(lambda: today * DAY_SECONDS)
    with Store(tmp_path / LOG, lake=lake.data, system=system) as store:
        name = store.database.name
        publisher = Publisher(store, lake)
        publisher.archiver.retention = Retention(hot_days=0)
        for today in range(FIRST, FIRST + 4):
            for number in range(2):
                fill(store, 10 * (today - FIRST) + number + 1)
            store.database.partitions.roll_up()
        drained(publisher)
        publisher.close()
        kept, marks, position = all_rows(store), store.marks(["lab/1.0.0/n1", "lab/11.0.0/n1"]), store.head
        with store.cursor() as log:
            hours = log.execute(HOURS).fetchall()
        fill(store, 99)  # is not published
    shutil.move(tmp_path / LOG, tmp_path / "lost")

    found, aside = restore_from_lake(name, lake, tmp_path / "new")
    assert (found.head, aside) == (position, None)
    assert found.rows == {table: len(rows) for table, rows in zip(TABLES, kept, strict=True)}
    with Store(tmp_path / "new" / LOG, lake=lake.data, system=system) as store:
        assert alike(all_rows(store), kept)
        assert store.database.name == name
        assert store.marks(["lab/1.0.0/n1", "lab/11.0.0/n1"]) == marks
        assert [day.archived for day in store.database.partitions.days] == [True, True, True, False]
        with store.cursor() as log:
            assert alike([log.execute(HOURS).fetchall()], [hours])
        fill(store, 100)
        assert min(offset for (offset, *_) in logged(store, "jobs")[0][-2:]) > position
        assert store.head > JUMP
        publish(store, lake)
        daily = [table for table in TABLES if table not in DAILY]
        assert alike(rows_of(tmp_path / "lake", *daily), logged(store, *daily))
        offsets = [row[0] for row in rows_of(tmp_path / "lake", "blocks")[0]]
        assert len(offsets) == len(set(offsets)) == store.database.row_counts()["blocks"]


def test_agents_send_what_the_lake_has_not_and_nothing_twice(tmp_path: Path) -> None:
    """A collector dies after it has published 5 messages, stored 6 and acknowledged 4."""
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        name = store.database.name
        for seq in range(1, 6):
            store.commit([entry("blocks", 10, blocks(10, 10 * seq))], {"lab/1.0.0/n1": seq})
        publish(store, lake)
        store.commit([entry("blocks", 10, blocks(10, 60))], {"lab/1.0.0/n1": 6})
    restore_from_lake(name, lake, tmp_path / "new")
    with (
        collector_on(tmp_path / "new" / LOG, publisher_of=lambda store: Publisher(store, lake, seconds=0.1),
                     lake=lake.data) as collector,
        Producer(collector.endpoint, "lab/1.0.0/n1") as producer,
    ):  # fmt: skip
        assert producer.hello().acked == 5
        for seq in range(5, 9):
            producer.append(seq, "blocks", 10, blocks(10, 10 * seq))
        producer.receive_ack(8)
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        publish(store, lake)
        firsts = [row[4] for row in logged(store, "blocks")[0]]
    assert firsts == list(range(10, 90))
    assert [row[4] for row in rows_of(tmp_path / "lake", "blocks")[0]] == firsts


def test_a_lake_of_a_version_without_marks_gives_the_rows(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        store.commit([entry("blocks", 10, blocks(10))], {"lab/1.0.0/n1": 1})
        publish(store, lake)
        name, before = store.database.name, logged(store, "blocks")
    with loaded("ducklake") as connection:
        connection.execute(f"ATTACH 'ducklake:{tmp_path / 'lake' / CATALOG_FILE}' AS lake")
        connection.execute("DROP TABLE lake.marks")
    restore_from_lake(name, lake, tmp_path / "new")
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        assert alike(logged(store, "blocks"), before)
        assert store.marks(["lab/1.0.0/n1"]) == {}


@contextmanager
def journalled(state: Path, journal: Path, lake: Lake) -> Iterator[tuple[Collector, Producer]]:
    """A collector whose journal is apart from its state directory, and a producer that it has admitted."""
    state.mkdir()
    put_journal(state, journal)
    with (
        collector_on(state / LOG, lake=lake.data) as collector,
        Producer(collector.endpoint, "lab/1.0.0/n1") as producer,
    ):
        producer.hello()
        yield collector, producer


def test_with_a_journal_apart_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    """The state directory is gone, the lake lacks half, and the log comes back with the same offsets."""
    lake, state, journal = Lake.at(tmp_path / "lake"), tmp_path / "state", tmp_path / "nfs"
    with journalled(state, journal, lake) as (collector, producer):
        for seq in range(1, 41):
            producer.append(seq, "blocks", 10, blocks(10, 10 * seq))
            producer.receive_ack(seq)
            if seq == 20:
                assert collector._writer.settle()
                assert collector._store.head == 200
                publish(collector._store, lake)
        name = collector._store.database.name
        assert collector._writer.settle()
        assert collector._store.head == 400
        before = logged(collector._store, "blocks")
    assert any(journal.glob("*.segment")), "a clean end leaves what the lake lacks"
    shutil.rmtree(state)
    found, _ = restore_from_lake(name, lake, tmp_path / "new", journal=journal)
    assert found.head == 400
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        assert alike(logged(store, "blocks"), before)
        assert store.marks(["lab/1.0.0/n1"]) == {"lab/1.0.0/n1": 40}
        publish(store, lake)
        store.checkpoint()
    assert not any(journal.glob("*.segment")), "the lake has all"
    assert alike(rows_of(tmp_path / "lake", "blocks"), before)
    shutil.rmtree(tmp_path / "new")
    (journal / "owner").write_text("another")
    with pytest.raises(BackupError, match=f"belongs to the log another, expected {name}"):
        restore_from_lake(name, lake, tmp_path / "new", journal=journal)


def test_a_journal_gives_the_log_back_of_which_nothing_was_published(tmp_path: Path) -> None:
    lake, state, journal = Lake.at(tmp_path / "lake"), tmp_path / "state", tmp_path / "nfs"
    with Store(tmp_path / LOG, lake=lake.data) as store:  # of another collector
        fill(store, 1)
        publish(store, lake)
    with journalled(state, journal, lake) as (collector, producer):
        producer.append(1, "blocks", 10, blocks(10))
        producer.receive_ack(1)
        name = collector._store.database.name
    with pytest.raises(BackupError, match=rf"{name}' is no log of the lake"):
        restore_from_lake(name, lake, tmp_path / "new")
    with pytest.raises(BackupError, match="'abc' is no log of the lake"):
        restore_from_lake("abc", lake, tmp_path / "new", journal=journal)
    assert restore_from_lake(name, lake, tmp_path / "new", journal=journal)[0].head == 10
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        assert len(logged(store, "blocks")[0]) == 10
        assert store.marks(["lab/1.0.0/n1"]) == {"lab/1.0.0/n1": 1}


def test_a_journal_that_lacks_messages_is_refused(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        store.commit([entry("blocks", 10, blocks(10))], {"lab/1.0.0/n1": 1, "": 7})
        publish(store, lake)
        name = store.database.name
    journal = Journal(tmp_path / "nfs")
    journal.claim(name)
    journal.last = 9
    journal.append([b"x"])
    text = "has messages 10 to 10, expected all behind 7, of which the lake has the rows"
    with pytest.raises(BackupError, match=text):
        restore_from_lake(name, lake, tmp_path / "new", journal=tmp_path / "nfs")


def test_a_journal_is_put_apart_once_it_has_no_messages(tmp_path: Path) -> None:
    with Store(tmp_path / LOG) as store:
        store.journal.append([b"x"])
        with pytest.raises(StoreError, match="has messages, expected that the collector was stopped"):
            put_journal(tmp_path, tmp_path / "nfs")
        store.journal.truncate(1)
    put_journal(tmp_path, tmp_path / "nfs")
    put_journal(tmp_path, tmp_path / "nfs")
    with pytest.raises(StoreError, match=f"is in {tmp_path / 'nfs'}, expected {tmp_path / 'other'}"):
        put_journal(tmp_path, tmp_path / "other")


@pytest.mark.parametrize("seed", range(2))
def test_a_batch_ends_with_a_commit_however_marks_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At each position of the lake its marks are those of exactly the rows that it has."""
    monkeypatch.setattr(BatchReader, "limit", 200)
    monkeypatch.setattr(database, "MARKS_ROWS", 100)
    numbers = np.random.default_rng(seed)
    lake = Lake.at(tmp_path / "lake")
    sent = dict.fromkeys(("a/1.0.0/n", "b/1.0.0/n", "c/1.0.0/n"), 0)
    upto: dict[int, dict[str, int]] = {}
    number = 0
    system = calendar_at(lambda: (FIRST + number // 15) * DAY_SECONDS)
    with Store(tmp_path / LOG, lake=lake.data, system=system) as store:
        publisher = Publisher(store, lake)
        for number in range(40):
            for stream in sent:
                sent[stream] += int(numbers.integers(0, 2))
            rows = int(numbers.integers(1, 60)) if number != 30 else 450
            store.commit([entry("blocks", rows, blocks(rows, store.head))], sent)
            upto[store.head] = dict(sent)
            if numbers.random() < 0.2:
                store.database.compact_marks()
            if numbers.random() < 0.1:
                publisher.publish()
                check(store, upto, tmp_path)
        while publisher.publish():
            check(store, upto, tmp_path)
        check(store, upto, tmp_path)
        publisher.close()
        assert store.published == store.head


def check(store: Store, upto: dict[int, dict[str, int]], tmp_path: Path) -> None:
    with opened(tmp_path / "lake") as connection:
        found = dict(connection.execute("SELECT stream, max(seq) FROM lake.marks GROUP BY 1").fetchall())
    assert store.published in upto, "the lake ends within a commit"
    assert found == upto[store.published]


def test_what_cannot_be_restored_from_a_lake_is_refused(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with pytest.raises(BackupError, match=r"has no catalog\.ducklake, expected one"):
        restore_from_lake("abc", lake, tmp_path / "new")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        fill(store, 1)
        publish(store, lake)
        name = store.database.name
    with pytest.raises(BackupError, match=rf"'abc' is no log of the lake .*, expected one of: {name}"):
        restore_from_lake("abc", lake, tmp_path / "new")
    with pytest.raises(BackupError, match=r"log\.duckdb: exists, expected no log; --replace puts it aside"):
        restore_from_lake(name, lake, tmp_path)
    assert restore_from_lake(name, lake, tmp_path, replace=True)[1] is not None
