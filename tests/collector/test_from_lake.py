"""A collector that is lost is made again from the lake: what was sealed is there once, agents go on behind it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.protocol.tables import TABLES
from barograph_collector.backup.archive import BackupError, make
from barograph_collector.backup.restore import JUMP, restore, restore_from_lake
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import Sealer
from barograph_collector.server import Collector
from barograph_collector.storage.connection import StoreError
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.layout import DAILY, OFFSET
from barograph_collector.storage.store import LOG, Store, put_journal
from helpers.clocks import calendar_at
from helpers.lakes import alike, any_rows, entry, job_row, logged, rows_of, seal_all
from helpers.log import Producer, blocks, collector_on

FIRST = 20_000


def fill(store: Store, seed: int) -> None:
    """A commit with rows of every table, of two streams."""
    numbers = np.random.default_rng(seed)
    entries = [any_rows(table, int(numbers.integers(1, 5)), numbers) for table in TABLES]
    store.commit(entries, {"lab/1.0.0/n1": seed, f"lab/{seed}.0.0/n1": 7, "": seed})


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
    now = FIRST * DAY_SECONDS
    system = calendar_at(lambda: now)
    (tmp_path / "old").mkdir()
    with Store(tmp_path / "old" / LOG, lake=lake.data, system=system) as store:
        name = store.database.name
        for number in range(8):
            now = (FIRST + number / 2) * DAY_SECONDS
            fill(store, number + 1)
            store.database.compact_marks()
        seal_all(store, lake, retention=Retention(hot_days=0))
        kept, marks, position = all_rows(store), store.marks(["lab/1.0.0/n1", "lab/5.0.0/n1"]), store.head
        fill(store, 99)  # is not sealed
        lost = store.head - position
    made = restore_from_lake(name, lake, tmp_path / "old", replace=True, system=system)
    assert (made.backup.head, made.replaced_rows) == (position, lost)
    assert made.aside
    with Store(tmp_path / "old" / LOG, lake=lake.data, system=system) as store:
        jobs = {row[1] for row in kept[list(TABLES).index("jobs")]}
        ended = {row[1] for row in kept[list(TABLES).index("runs")]}
        events = list(TABLES).index("events")
        found = all_rows(store)
        added = found[events][len(kept[events]) :]
        assert made.unfinished == len(added) <= len(jobs - ended)
        found[events] = found[events][: len(kept[events])]
        assert alike(found, kept)
        assert store.database.name == name
        assert store.marks(["lab/1.0.0/n1", "lab/5.0.0/n1"]) == marks
        assert [day.archived for day in store.database.partitions.days] == [True, True, True, False]
        fill(store, 100)
        assert min(offset for (offset, *_) in logged(store, "jobs")[0][-2:]) > JUMP
        seal_all(store, lake)
        daily = [table for table in TABLES if table not in DAILY]
        assert alike(rows_of(tmp_path / "lake", *daily), logged(store, *daily))
        offsets = [row[0] for row in rows_of(tmp_path / "lake", "blocks")[0]]
        assert len(offsets) == len(set(offsets)) == store.database.row_counts()["blocks"]


def test_jobs_that_may_have_lost_rows_have_an_event_and_the_time_is_that_of_the_data(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        name, end = store.database.name, 1.7e9
        runs = any_rows("runs", 1, np.random.default_rng(1))
        ended = runs.columns["job"][0]  # type: ignore[index]
        rows = blocks(3, job="c0/7.0.0") | {"ended_at": np.array([end - 2, end - 1, end])}
        store.commit(
            [job_row(str(ended), "a", 1), job_row("c0/7.0.0", "a", int(end)), runs, entry("blocks", 3, rows)], {"s": 1}
        )
        seal_all(store, lake)
    made = restore_from_lake(name, lake, tmp_path / "new")
    assert (made.backup.made_at, made.unfinished) == (end, 1)
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        (event,) = logged(store, "events")[0]
    assert event[1:4] == ("collector", "lost", 0)
    assert event[4].startswith(
        "c0/7.0.0 had not ended at 2023-11-14T22:13:20Z: later rows that were acknowledged are not"
    )


def test_agents_send_what_the_lake_has_not_and_nothing_twice(tmp_path: Path) -> None:
    """A collector dies after it has sealed 5 messages, stored 6 and acknowledged 4."""
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        name = store.database.name
        for seq in range(1, 6):
            store.commit([entry("blocks", 10, blocks(10, 10 * seq))], {"lab/1.0.0/n1": seq})
        seal_all(store, lake)
        store.commit([entry("blocks", 10, blocks(10, 60))], {"lab/1.0.0/n1": 6})
    restore_from_lake(name, lake, tmp_path / "new")
    with (
        collector_on(
            tmp_path / "new" / LOG, sealer_of=lambda store: Sealer(store, lake), lake=lake.data, period_seconds=0.1
        ) as collector,
        Producer(collector.endpoint, "lab/1.0.0/n1") as producer,
    ):
        assert producer.hello().acked == 5
        for seq in range(5, 9):
            producer.append(seq, "blocks", 10, blocks(10, 10 * seq))
        producer.receive_ack(8)
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        seal_all(store, lake)
        firsts = [row[4] for row in logged(store, "blocks")[0]]
    assert firsts == list(range(10, 90))
    assert [row[4] for row in rows_of(tmp_path / "lake", "blocks")[0]] == firsts


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
            if seq in (10, 20):
                assert collector._writer.settle()
                if seq == 10:
                    make(state, tmp_path / "backup")
                seal_all(collector.store, lake)
        name = collector.store.database.name
        assert collector._writer.settle()
        assert collector.store.head == 400
        before = logged(collector.store, "blocks")
    assert any(journal.glob("*.segment")), "a clean end leaves what the lake lacks"
    shutil.rmtree(state)
    # What a backup has not, journal and lake have: both would come again.
    text = (
        rf"up to 100, the lake .* up to 200: .*: barograph restore --replace --log {name} --state .*/new --lake .*/lake"
    )
    with pytest.raises(BackupError, match=text):
        restore(tmp_path / "backup", tmp_path / "new", lake)
    restore(tmp_path / "backup", tmp_path / "new")
    put_journal(tmp_path / "new", journal)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"{text} --journal .*/nfs$"):
            Store(tmp_path / "new" / LOG, lake=lake.data)
    assert restore_from_lake(name, lake, tmp_path / "new", journal=journal, replace=True).backup.head == 400
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        assert alike(logged(store, "blocks"), before)
        assert store.marks(["lab/1.0.0/n1"]) == {"lab/1.0.0/n1": 40}
        seal_all(store, lake)
        store.checkpoint()
    assert not any(journal.glob("*.segment")), "the lake has all"
    assert alike(rows_of(tmp_path / "lake", "blocks"), before)
    shutil.rmtree(tmp_path / "new")
    (journal / "owner").write_text("another")
    with pytest.raises(BackupError, match=f"belongs to the log another, expected {name}"):
        restore_from_lake(name, lake, tmp_path / "new", journal=journal)


def test_a_backup_whose_rows_were_sealed_since_goes_on_with_these_periods(tmp_path: Path) -> None:
    lake, state = Lake.at(tmp_path / "lake"), tmp_path / "state"
    state.mkdir()
    with Store(state / LOG, lake=lake.data) as store:
        for seq in range(1, 5):
            store.commit([entry("blocks", 10, blocks(10, 10 * seq))], {"lab/1.0.0/n1": seq})
            if seq in (1, 4):
                store.checkpoint()
                seal_all(store, lake) if seq == 1 else make(state, tmp_path / "backup")
        seal_all(store, lake)
    shutil.rmtree(state)
    restore(tmp_path / "backup", state, lake)
    with Store(state / LOG, lake=lake.data) as store:
        store.commit([entry("blocks", 10, blocks(10, 50))], {"lab/1.0.0/n1": 5})
        seal_all(store, lake)
        assert store.database.sealed == store.head
        assert alike(rows_of(tmp_path / "lake", "blocks"), logged(store, "blocks"))


def test_a_journal_gives_the_log_back_of_which_nothing_was_sealed(tmp_path: Path) -> None:
    lake, state, journal = Lake.at(tmp_path / "lake"), tmp_path / "state", tmp_path / "nfs"
    with Store(tmp_path / LOG, lake=lake.data) as store:  # of another collector
        fill(store, 1)
        seal_all(store, lake)
    with journalled(state, journal, lake) as (collector, producer):
        producer.append(1, "blocks", 10, blocks(10))
        producer.receive_ack(1)
        name = collector.store.database.name
    with pytest.raises(BackupError, match=rf"{name}' is no log of the lake"):
        restore_from_lake(name, lake, tmp_path / "new")
    with pytest.raises(BackupError, match="'abc' is no log of the lake"):
        restore_from_lake("abc", lake, tmp_path / "new", journal=journal)
    assert restore_from_lake(name, lake, tmp_path / "new", journal=journal).backup.head == 10
    with Store(tmp_path / "new" / LOG, lake=lake.data) as store:
        assert len(logged(store, "blocks")[0]) == 10
        assert store.marks(["lab/1.0.0/n1"]) == {"lab/1.0.0/n1": 1}


def test_a_journal_that_lacks_messages_is_refused(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        store.commit([entry("blocks", 10, blocks(10))], {"lab/1.0.0/n1": 1, "": 7})
        seal_all(store, lake)
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


def test_what_cannot_be_restored_from_a_lake_is_refused(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with pytest.raises(BackupError, match=r"has no barograph-lake, expected it"):
        restore_from_lake("abc", lake, tmp_path / "new")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        fill(store, 1)
        seal_all(store, lake)
        name = store.database.name
    with pytest.raises(BackupError, match=rf"'abc' is no log of the lake .*, expected one of: {name}"):
        restore_from_lake("abc", lake, tmp_path / "new")
    with pytest.raises(BackupError, match=r"log\.duckdb: exists, expected no log; --replace puts it aside"):
        restore_from_lake(name, lake, tmp_path)
    assert restore_from_lake(name, lake, tmp_path, replace=True).aside is not None
