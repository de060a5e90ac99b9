"""The log on disk: committed rows are read back in order, in pages that fit into a message."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES, TEXT_LIMIT, Table
from barograph_agent.system.clock import Clock
from barograph_agent.system.system import SYSTEM
from barograph_collector.storage.connection import StoreError
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.layout import JOURNAL, LOG_COLUMNS
from barograph_collector.storage.pages import READ_BYTES
from barograph_collector.storage.rows import Entry
from barograph_collector.storage.store import Store
from helpers.clocks import calendar_at
from helpers.lakes import entry
from helpers.log import blocks


def sites(count: int, text: str) -> Entry:
    return entry(
        "sites",
        count,
        {"job": "j", "class_id": np.arange(count), "from_site": text, "to_site": [text] * count, "operation": "o"},
    )


def marks_of(store: Store) -> dict[str, int]:
    """The marks of all streams but the journal."""
    with store.cursor() as log:
        names = [name for (name,) in log.execute("SELECT DISTINCT stream FROM streams WHERE stream != ''").fetchall()]
    return store.marks(names)


def test_values_of_every_kind_are_read_back_unchanged_and_offsets_are_one_sequence(tmp_path: Path) -> None:
    odd = "quote ' \" \\ newline \n nul \0 snow ☃"
    values = {"source": ["a", "b"], "kind": "k", "rows": np.array([-(2**63), 2**63 - 1]), "detail": odd, "time": np.nan}
    with Store(tmp_path / "log.duckdb") as store:
        assert store.commit([entry("events", 2, values), entry("blocks", 3, blocks(3))], {"s": 1}) == 5
        assert store.commit([entry("events", 1, {**values, "source": "c", "rows": 0})], {"s": 2, "t": 9}) == 6
        page = store.read("events", 0, 10)
        assert page.columns["log_offset"].tolist() == [1, 2, 6]
        assert page.columns["source"] == ["a", "b", "c"]
        assert page.columns["rows"].tolist() == [-(2**63), 2**63 - 1, 0]
        assert page.columns["detail"] == [odd] * 3
        assert np.isnan(page.columns["time"]).all()
        assert page.next_offset == 6
        stored = store.read("blocks", 0, 10).columns
        sent = wire.unpack(wire.pack(blocks(3), TABLES["blocks"].columns), TABLES["blocks"].columns, 3)
        assert {name: list(stored[name]) for name in sent} == {name: list(sent[name]) for name in sent}


def test_what_a_process_left_that_died_while_it_wrote_the_database_anew_is_deleted(tmp_path: Path) -> None:
    for name in ("log.duckdb.new", "log.duckdb.new.wal"):
        (tmp_path / name).write_bytes(b"half of it")
    with Store(tmp_path / "log.duckdb"):
        assert not list(tmp_path.glob("*.new*"))


def test_offsets_and_marks_survive_a_restart(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        assert marks_of(store) == {}
        store.commit([entry("blocks", 4, blocks(4))], {"s": 1, "t": 5})
        store.commit([entry("blocks", 1, blocks(1, first=4))], {"s": 2})
    with Store(tmp_path / "log.duckdb") as store:
        assert marks_of(store) == {"s": 2, "t": 5}
        assert store.commit([entry("blocks", 1, blocks(1, first=5))], {"s": 3}) == 6
        assert store.read("blocks", 0, 10).columns["first_index"].tolist() == [0, 1, 2, 3, 4, 5]


def test_pages_cover_a_table_once_and_negative_offsets_count_from_its_end(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        assert store.read("blocks", 0, 10).next_offset == 0
        assert store.read("blocks", -5, 10).next_offset == 0
        for part in range(30):
            mine, other = blocks(300, part * 300, "test/1"), blocks(50, part * 50, "test/2")
            store.commit([entry("blocks", 300, mine), sites(1, "x"), entry("blocks", 50, other)], {"s": part + 1})
        after, seen = 0, []
        while (page := store.read("blocks", after, 777)).rows:
            assert page.rows <= 777
            assert page.columns["log_offset"][0] > after
            seen += page.columns["log_offset"].tolist()
            after = page.next_offset
        assert len(seen) == len(set(seen)) == 30 * 350
        assert seen == sorted(seen)
        assert page.next_offset == after == seen[-1]

        of_job = store.read("blocks", 0, 65536, "test/2")
        assert set(of_job.columns["job"]) == {"test/2"}
        assert of_job.columns["first_index"].tolist() == list(range(1500))
        assert store.read("blocks", -3, 10).columns["log_offset"].tolist() == seen[-3:]
        assert store.read("blocks", -60, 10).columns["log_offset"].tolist() == seen[-60:-50]
        assert store.read("blocks", -60, 100, "test/1").columns["first_index"].tolist() == list(range(8940, 9000))
        assert store.read("blocks", -(10**6), 5).columns["log_offset"].tolist() == seen[:5]
        empty = store.read("blocks", -3, 10, "test/3")
        assert (empty.rows, empty.next_offset) == (0, seen[-1])


def test_pages_of_long_texts_fit_into_a_message_and_cover_all_rows(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        for seq in range(1, 5):
            store.commit([sites(25, "\N{SNOWMAN}" * TEXT_LIMIT)], {"s": seq})
        after, seen = 0, []
        while (page := store.read("sites", after, 65536)).rows:
            size = sum(len(text.encode()) for name in ("from_site", "to_site") for text in page.columns[name])
            assert size <= READ_BYTES
            assert size + 2 * 3 * TEXT_LIMIT > READ_BYTES - 1000 or page.next_offset == store.head
            seen += page.columns["class_id"].tolist()
            after = page.next_offset
        assert seen == list(range(25)) * 4


def test_a_failed_commit_changes_nothing(tmp_path: Path) -> None:
    good = entry("blocks", 2, blocks(2))
    bad = sites(1, "a")
    with Store(tmp_path / "log.duckdb") as store, store.cursor() as log:
        store.commit([good], {"s": 1})
        log.execute("ALTER TABLE sites RENAME from_site TO behind")
        with pytest.raises(duckdb.BinderException):
            store.commit([good, bad], {"s": 2})
        log.execute("ALTER TABLE sites RENAME behind TO from_site")
    with Store(tmp_path / "log.duckdb") as store:
        assert (store.head, marks_of(store)) == (2, {"s": 1})


def test_a_file_that_is_not_a_log_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; c = duckdb.connect({str(path)!r}); print('held', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StoreError) as refusal:
        Store(path)
    assert str(refusal.value) == (
        f"cannot open the log {path}: another process has it open (PID {holder.pid});"
        " stop that one, or choose another state directory"
    )
    holder.communicate("\n")

    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError) as refusal:
        Store(garbage)
    assert str(refusal.value) == (
        f'cannot open the log {garbage}: The file "{garbage}" exists, but it is not a valid DuckDB database file!'
        f"; to restore it: barograph restore --replace BACKUP --state {tmp_path}"
    )
    with pytest.raises(StoreError, match=f"^cannot open the log {tmp_path}: .*Is a directory$"):
        Store(tmp_path)

    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE sites (log_offset BIGINT, class_id VARCHAR)")
    shown = "'sites' with columns log_offset BIGINT, class_id VARCHAR, expected log_offset BIGINT, job VARCHAR, "
    with pytest.raises(StoreError, match=f"^cannot use the log {other}: it has a table {shown}"):
        Store(other)


# Crashes


def append_to_journal(store: Store, first: int, rows: int = 10, stream: str = "s") -> None:
    """Append one message to the journal, as one acknowledged and not yet in the database."""
    store.journal.append([wire.encode(wire.append(stream, first // rows + 1, "blocks", rows, blocks(rows, first)))])


def crash(store: Store, path: Path) -> None:
    """Copy to `path` the files that a killed process leaves."""
    path.mkdir()
    for name in ("log.duckdb", "log.duckdb.wal", "log.duckdb.journal"):
        source = store.path.with_name(name)
        if source.is_dir():
            shutil.copytree(source, path / name)
        elif source.exists():
            shutil.copy(source, path / name)


@pytest.mark.parametrize("damage", ["none", "lost", "cut", "garbage"])
def test_the_journal_restores_a_database_with_a_damaged_write_ahead_log(tmp_path: Path, damage: str) -> None:
    (tmp_path / "a").mkdir()
    with Store(tmp_path / "a/log.duckdb") as store:
        for first in range(0, 50, 10):
            append_to_journal(store, first)
            if first < 30:
                store.commit([entry("blocks", 10, blocks(10, first))], {"s": first // 10 + 1, JOURNAL: first // 10 + 1})
        crash(store, tmp_path / "b")
    wal = tmp_path / "b/log.duckdb.wal"
    assert wal.stat().st_size > 1000
    if damage == "lost":
        wal.unlink()
    elif damage == "cut":
        os.truncate(wal, wal.stat().st_size // 2)
    elif damage == "garbage":
        wal.write_bytes(b"x" * wal.stat().st_size)
    with Store(tmp_path / "b/log.duckdb") as store:
        page = store.read("blocks", 0, 100)
        assert page.columns["first_index"].tolist() == list(range(50))
        assert page.columns["log_offset"].tolist() == list(range(1, 51))
        assert (store.head, marks_of(store)) == (50, {"s": 5})


def test_messages_of_a_damaged_segment_are_an_event_and_the_others_are_replayed(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb", segment_bytes=100) as store:
        for first in range(0, 50, 10):
            append_to_journal(store, first)
        crash(store, tmp_path / "b")
    segment = sorted((tmp_path / "b/log.duckdb.journal").glob("*.segment"))[2]
    segment.write_bytes(b"x" + segment.read_bytes()[1:])
    for _ in range(2):
        with Store(tmp_path / "b/log.duckdb") as store:
            events = store.read("events", 0, 10).columns
            assert store.read("blocks", 0, 100).columns["first_index"].tolist() == [*range(20), *range(30, 50)]
            assert (events["kind"], events["rows"].tolist()) == (["lost"], [1])  # type: ignore[union-attr]
            assert events["detail"] == ["the journal lacks messages between 1 and 5"]


def test_days_are_dropped_though_no_checkpoint_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day = 20_000
    with Store(tmp_path / "log.duckdb", system=calendar_at(lambda: day * DAY_SECONDS)) as store:
        for day in range(20_000, 20_003):
            store.commit([entry("blocks", 10, blocks(10, store.head))], {f"s{day}": 1})
        with store.cursor() as query:
            query.execute("BEGIN; FROM blocks")
            assert store.apply_retention(Retention(days=1)) == 1
        assert store.read("blocks", 0, 100).rows == 10
        assert marks_of(store) == {"s20001": 1, "s20002": 1}


def test_reopening_replays_the_missing_messages_of_the_journal(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        append_to_journal(store, 0)
        append_to_journal(store, 10)
        append_to_journal(store, 20)
        store.commit([entry("blocks", 10, blocks(10))], {"s": 1, JOURNAL: 1})
        store.reopen(2)
        assert store.read("blocks", 0, 100).columns["first_index"].tolist() == list(range(20))
        store.checkpoint()
        store.reopen(3)
        assert store.read("blocks", 0, 100).columns["first_index"].tolist() == list(range(30))


def test_a_checkpoint_truncates_the_journal_and_a_clean_shutdown_leaves_one_file(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        append_to_journal(store, 0)
        store.checkpoint()
        assert store.journal.size > 0
        store.commit([entry("blocks", 10, blocks(10))], {"s": 1, JOURNAL: 1})
        store.checkpoint()
        assert store.journal.size == 0
        append_to_journal(store, 10)
        store.commit([entry("blocks", 10, blocks(10, 10))], {"s": 2, JOURNAL: 2})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["log.duckdb", "log.duckdb.journal"]
    with Store(tmp_path / "log.duckdb") as store:
        append_to_journal(store, 20)
        assert store.journal.last == 3


def test_marks_are_compacted_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph_collector.storage.database.MARKS_LIMIT", 100)
    with Store(tmp_path / "log.duckdb") as store:
        for seq in range(1, 40):
            store.commit([entry("blocks", 1, blocks(1))], {f"s{seq % 7}": seq, "t": seq})
        assert marks_of(store) == {"t": 39, **{f"s{seq % 7}": seq for seq in range(33, 40)}}
        with store.cursor() as cursor:
            assert cursor.execute("SELECT count(*) < 100 FROM streams").fetchone() == (True,)


# Days


class Calendar:
    day = 20_000

    def __call__(self) -> float:
        return 86400.0 * self.day + 3600.0


def test_days_are_read_as_one_table_and_dropped_as_a_whole(tmp_path: Path) -> None:
    calendar = Calendar()
    with Store(tmp_path / "log.duckdb", system=calendar_at(calendar)) as store:
        job = {"job": "test/1.0.0", "cluster": "c", "workload": "w", "app": "a", "user": "u", "params": "", "ranks": 1}
        store.commit(
            [
                entry(
                    "jobs",
                    1,
                    {
                        **job,
                        "nodes": 1,
                        "host": "h",
                        "started_at": 0.0,
                        "scheduler": "none",
                        "account": "",
                        "unique_id": "",
                    },
                )
            ],
            {"s": 1},
        )
        for day in range(4):
            calendar.day = 20_000 + day
            ended = {"ended_at": 86400.0 * calendar.day + 1800.0 * np.arange(100)}
            store.commit([entry("blocks", 100, blocks(100, 100 * day) | ended)], {"s": day + 2, f"of day {day}": 1})
        calendar.day = 19_000  # a clock set back: rows belong to the newest day
        store.commit([entry("blocks", 5, blocks(5, 400, "test/2"))], {"s": 9})
        calendar.day = 20_004

        after, seen = 100, []
        while (page := store.read("blocks", after, 70)).rows:
            seen += page.columns["first_index"].tolist()
            after = page.next_offset
        assert seen == list(range(99, 405))
        assert store.read("blocks", -320, 1000).columns["first_index"].tolist() == list(range(85, 100))
        assert store.read("blocks", 0, 10, "test/2").columns["first_index"].tolist() == list(range(400, 405))
        assert store.database.row_counts()["blocks"] == 405

        assert store.apply_retention(Retention(days=2)) == 2
        assert store.read("blocks", 0, 1000).columns["first_index"].tolist() == list(range(200, 300))
        assert store.database.row_counts()["blocks"] == 205
        with store.cursor() as cursor:
            assert cursor.execute("SELECT count(*), min(first_index) FROM blocks").fetchone() == (205, 200)
        assert marks_of(store).keys() == {"s", "of day 2", "of day 3"}
        assert store.apply_retention(Retention(days=2)) == 0
        assert store.apply_retention(Retention(bytes=1)) == 1, "the newest day is never dropped"
        assert store.head == 406
        assert marks_of(store) == {"s": 9, "of day 3": 1}, "the mark of a stream is dropped with its last day"
    with Store(tmp_path / "log.duckdb", system=calendar_at(calendar)) as store:
        store.commit([entry("blocks", 1, blocks(1, 405))], {"s": 10})
        assert store.read("blocks", 0, 1000).columns["first_index"].tolist() == list(range(300, 405))
        assert store.read("blocks", -1, 10).columns["first_index"].tolist() == [405]


class JumpingClock(Clock):
    """A clock whose Unix time can jump beside the monotonic one. In days."""

    def __init__(self) -> None:
        self.day, self.jump = 20_000.0, 0.0
        self.now = lambda: (self.day + self.jump) * DAY_SECONDS  # type: ignore[method-assign]
        self.monotonic = lambda: self.day * DAY_SECONDS  # type: ignore[method-assign]


def test_a_jump_of_the_clock_drops_no_day_and_rows_remain_on_theirs(tmp_path: Path) -> None:
    clock = JumpingClock()
    system = SYSTEM._replace(clock=clock)
    with Store(tmp_path / "log.duckdb", system=system) as store:

        def commit() -> list[int]:
            first = store.head
            store.commit([entry("blocks", 10, blocks(10, first))], {"s": first + 1})
            store.apply_retention(Retention(days=5))
            return [partition.day for partition in store.database.partitions.days]

        for _ in range(3):
            days = commit()
            clock.day += 1
        assert days == [20_000, 20_001, 20_002]
        clock.jump = 5_000
        assert commit() == [20_000, 20_001, 20_002, 20_003]
        assert store.calendar.held
        clock.jump = 0
        clock.day += 0.9
        assert commit() == [20_000, 20_001, 20_002, 20_003]
        assert not store.calendar.held
        clock.day += 0.1
        assert commit()[-1] == 20_004


def test_a_clock_behind_the_newest_rows_is_said_once_and_nothing_is_dropped_by_age(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = JumpingClock()
    clock.jump = 5_000  # The host began with a wrong clock.
    with Store(tmp_path / "log.duckdb", system=SYSTEM._replace(clock=clock)) as store:

        def commit() -> list[int]:
            store.commit([entry("blocks", 10, blocks(10, store.head))], {"s": store.head + 1})
            return [partition.day for partition in store.database.partitions.days]

        assert commit() == [25_000]
        assert not caplog.messages
        clock.jump = 0
        for _ in range(3):
            assert commit() == [25_000]
            assert store.calendar.held
        assert caplog.messages == [
            "the clock is 5000 days behind the newest rows: others are stored under their day, 2038-06-13, until then,"
            " or until a reload confirms the clock"
        ]
        clock.jump = 5_001
        assert commit() == [25_000, 25_001]
        assert not store.calendar.held


def test_days_follow_one_in_the_future_once_the_clock_is_confirmed(tmp_path: Path) -> None:
    clock = JumpingClock()
    clock.jump = 2
    system = SYSTEM._replace(clock=clock)

    def commit(store: Store) -> list[int]:
        store.commit([entry("blocks", 10, blocks(10, store.head))], {"s": store.head + 1})
        return [partition.day for partition in store.database.partitions.days]

    with Store(tmp_path / "log.duckdb", system=system) as store:
        assert commit(store) == [20_002]
        clock.jump = 0
        assert commit(store) == [20_002]
        store.calendar.confirm()
        assert commit(store) == [20_002, 20_000]
        assert not store.calendar.held
    with Store(tmp_path / "log.duckdb", system=system) as store:
        clock.day += 1
        assert commit(store) == [20_002, 20_000, 20_001]
        clock.day += 1
        assert commit(store) == [20_002, 20_000, 20_001], "the log has had this day"
        clock.day += 1
        assert commit(store) == [20_002, 20_000, 20_001, 20_003]
        after, seen = 0, []
        while (page := store.read("blocks", after, 100)).rows:
            seen += page.columns["first_index"].tolist()
            after = page.next_offset
        assert seen == list(range(60))


def test_a_day_in_the_future_is_dropped_with_the_one_that_followed(tmp_path: Path) -> None:
    clock = JumpingClock()
    clock.jump = 5_000
    with Store(tmp_path / "log.duckdb", system=SYSTEM._replace(clock=clock)) as store:
        left = []
        for day in range(5):
            if day:
                clock.jump, clock.day = 0, 20_000 + day
                store.calendar.confirm()
            store.commit([entry("blocks", 10, blocks(10, store.head))], {"s": store.head + 1})
            store.apply_retention(Retention(days=2))
            left.append([partition.day for partition in store.database.partitions.days])
    future = 25_000
    assert left == [
        [future],
        [future, 20_001],
        [future, 20_001, 20_002],
        [future, 20_001, 20_002, 20_003],
        [20_002, 20_003, 20_004],
    ]


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_clock_that_was_right_is_followed_after_a_day_or_once_it_is_confirmed(
    tmp_path: Path, *, confirmed: bool
) -> None:
    clock = JumpingClock()
    system = SYSTEM._replace(clock=clock)
    with Store(tmp_path / "log.duckdb", system=system) as store:
        store.commit([entry("blocks", 10, blocks(10))], {"s": 1})
    clock.day += 30  # The service was off for so long.
    with Store(tmp_path / "log.duckdb", system=system) as store:
        store.commit([entry("blocks", 10, blocks(10, 10))], {"s": 2})
        assert store.apply_retention(Retention(days=5)) == 0
        if confirmed:
            store.calendar.confirm()
        else:
            clock.day += 1.01
        store.commit([entry("blocks", 10, blocks(10, 20))], {"s": 3})
        assert store.apply_retention(Retention(days=5)) == 1
        assert [partition.day for partition in store.database.partitions.days] == [int(clock.day)]


def test_what_is_kept_for_ever_does_not_count_in_the_limit_of_what_is_dropped(tmp_path: Path) -> None:
    day = 20_000
    sites = {"job": "j", "class_id": np.arange(500, dtype=np.uint64), "to_site": "a", "operation": "o"}
    with Store(tmp_path / "log.duckdb", system=calendar_at(lambda: day * DAY_SECONDS)) as store:
        for number in range(3):
            day = 20_000 + number
            store.commit([entry("blocks", 10, blocks(10, 10 * number))], {"s": number + 1})
        texts = [random.Random(number).randbytes(8000).hex() for number in range(500)]
        store.commit([entry("sites", 500, {**sites, "from_site": texts})], {"s": 9})
        store.checkpoint()
        assert store.apply_retention(Retention(bytes=6_000_000)) == 0
        assert store.apply_retention(Retention(bytes=1)) == 2


# Other versions


def test_new_columns_are_added_to_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOG_COLUMNS, "blocks", dict(list(LOG_COLUMNS["blocks"].items())[:-1]))
    monkeypatch.setitem(TABLES, "blocks", Table("blocks", dict(list(TABLES["blocks"].columns.items())[:-1])))
    with Store(tmp_path / "log.duckdb") as store:
        store.commit([entry("blocks", 3, blocks(3))], {"s": 1})
    monkeypatch.undo()
    with Store(tmp_path / "log.duckdb") as store:
        store.commit([entry("blocks", 1, blocks(1, 3))], {"s": 2})
        page = store.read("blocks", 0, 10)
        assert page.columns["ended_at"].tolist() == [0.0, 0.0, 0.0, 1e9 + 0.1]
        with store.cursor() as cursor:
            assert cursor.execute("SELECT count(ended_at) FROM blocks").fetchall() == [(4,)]
