"""Days that are in the lake leave the database: every question has the same answer, and a kill costs no row."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.client.log_reader import LogReader
from barograph_collector.lake import expiry
from barograph_collector.lake.archiver import Archiver
from barograph_collector.lake.batches import BatchReader
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.expiry import Periods
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import Publisher
from barograph_collector.query.reader import answer_read
from barograph_collector.query.sql import check
from barograph_collector.settings import periods
from barograph_collector.storage import pages
from barograph_collector.storage.database import Database
from barograph_collector.storage.days.archive import Archive
from barograph_collector.storage.days.data_path import DATA, DirectoryPath
from barograph_collector.storage.days.partitions import Partitions
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET
from barograph_collector.storage.pages import PageReader
from barograph_collector.storage.store import Store
from helpers.archives import FIRST, WRITTEN, History, Rows, arrow, asked, followed, paged, selected
from helpers.lakes import alike, logged, opened, rows_of
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """A closed log of four days that are in the lake, of which none is archived; and its rows."""
    history = History(tmp_path_factory.mktemp("published"))
    history.write(days=4)
    while history.publisher.publish() or history.publisher.compact():
        pass
    rows = logged(history.store, *WRITTEN)
    history.close()
    copy_log(history.root, history.root / "before")
    return history.root, rows


def copy_log(source: Path, target: Path) -> None:
    """The files of a log as they are: what a kill leaves."""
    target.mkdir(exist_ok=True)
    for path in target.glob("log.duckdb*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in source.glob("log.duckdb*"):
        shutil.copytree(path, target / path.name) if path.is_dir() else shutil.copy(path, target)


@pytest.fixture
def history(published: tuple[Path, Rows]) -> Iterator[History]:
    """That log, of which all days but two can be archived."""
    root, _ = published
    copy_log(root / "before", root)
    made = History(root)
    made.day = FIRST + 4
    yield made
    made.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[History]:
    """An empty log."""
    made = History(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("window", [pages.WINDOW_ROWS, 20])
def test_pages_rounds_and_sql_have_the_rows_of_the_lake_and_of_the_database_as_one(
    history: History, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(pages, "WINDOW_ROWS", window)
    monkeypatch.setattr(pages, "_STEP_LIMIT", window)
    store = history.store
    before, counts, heads = logged(store, *WRITTEN), store.database.row_counts(), store.database.heads
    size = {job: paged(store, "blocks", job=job) for job in ("c0/1.0.0", "c1/8.0.0", "c9/none")}
    latest = store.read("blocks", -150, 60).columns[OFFSET].tolist()  # type: ignore[union-attr]
    history.settle()
    assert history.archived == [FIRST, FIRST + 1]
    with store.cursor() as log:
        assert log.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'blocks_%'").fetchone() == (2,)
    for reopened in (False, True):
        if reopened:
            history.close()
            history.open()
            store = history.store
        assert alike([paged(store, table) for table in WRITTEN], before)
        assert alike(followed(store), before)
        assert alike([selected(store, table) for table in WRITTEN], before)
        assert alike([paged(store, "blocks", job=job) for job in size], list(size.values()))
        assert store.read("blocks", -150, 60).columns[OFFSET].tolist() == latest  # type: ignore[union-attr]
        assert store.read("blocks", -1000, 60).next_offset == paged(store, "blocks")[59][0]
        assert store.database.row_counts() == counts
        assert store.database.heads == heads


def test_a_follower_of_several_tables_sorts_each_of_an_archived_day_once(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.settle()
    read = []
    sort = PageReader._sorted

    def counted(self: PageReader, part: Any, table: str, day: int, *rest: int) -> Any:
        read.append((table, day))
        return sort(self, part, table, day, *rest)

    monkeypatch.setattr(PageReader, "_sorted", counted)
    followed(history.store, limit=7)
    assert sorted(read) == sorted((table, day) for table in WRITTEN for day in history.archived)


def test_the_file_shrinks_by_what_the_lake_has(fresh: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph_collector.storage.store.MIN_FREE_BYTES", 2**16)
    monkeypatch.setattr("barograph_collector.storage.store.FREE_SHARE", 0.3)
    history = fresh
    history.write(days=3, rows=9000)
    history.store.checkpoint()
    before = (history.root / "log.duckdb").stat().st_size
    history.publisher.archiver.retention = Retention(hot_days=0)
    history.settle()
    assert history.store.shrink(0)
    assert (history.root / "log.duckdb").stat().st_size < 0.7 * before
    assert len(paged(history.store, "blocks", limit=10**5)) == 3 * 2 * 9000


def test_a_size_limit_archives_days_earlier_and_drops_none(history: History) -> None:
    history.publisher.archiver.retention = Retention(hot_days=100, bytes=1)
    history.settle()
    assert history.archived == [FIRST, FIRST + 1, FIRST + 2]
    assert history.store.apply_retention(Retention(bytes=1)) == 0
    assert history.store.apply_retention(Retention(days=3, hot_days=1)) == 1
    assert history.archived == [FIRST + 1, FIRST + 2]
    offsets = [row[0] for row in paged(history.store, "blocks")]
    assert min(offsets) >= history.store.database.partitions.first_offset > 1
    assert [row[0] for row in selected(history.store, "blocks")] == offsets


class Killed(BaseException):
    """The process is gone."""


STEPS: list[tuple[type, str, bool]] = [
    (Archiver, "_difference", False),
    (Partitions, "_create_views", False),
    (Archive, "store", False),
    (Archive, "store", True),
    (Database, "checkpoint", False),
    (Database, "checkpoint", True),
    (Store, "archive", True),
]
"""Functions, and whether the death is after them or before."""


@pytest.mark.parametrize(("owner", "name", "after"), STEPS)
def test_a_death_at_any_step_loses_and_doubles_nothing(
    history: History, published: tuple[Path, Rows], monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: bool
) -> None:
    root, expected = published
    function = getattr(owner, name)

    def dies(*arguments: Any, **named: Any) -> Any:
        if after:
            function(*arguments, **named)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(owner, name, dies)
        with pytest.raises(Killed):
            history.publisher.archive()
    copy_log(root, root / "left")
    history.close()
    copy_log(root / "left", root)
    history.open()
    assert alike([paged(history.store, table, 1000) for table in WRITTEN], expected)
    history.settle()
    assert history.archived == [FIRST, FIRST + 1]
    assert alike([paged(history.store, table, 1000) for table in WRITTEN], expected)
    assert alike([selected(history.store, table) for table in WRITTEN], expected)


ARCHIVE_FOREVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from helpers import archives
history = archives.History(Path(sys.argv[1]), hot_days=0)
days = history.store.database.partitions.days
history.day = days[-1].day + 1 if days else archives.FIRST
while True:
    history.write(days=1)
    history.settle()
    print("day", flush=True)
"""


@pytest.mark.process
def test_kills_at_any_instant_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", ARCHIVE_FOREVER, str(tmp_path), str(Path(__file__).parents[1])],
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            for _ in range(chance.integers(1, 3)):
                assert process.stdout.readline() == b"day\n"
            threading.Event().wait(chance.uniform(0, 1))
            process.send_signal(signal.SIGKILL)
    history = History(tmp_path, hot_days=0)
    history.store.apply_retention(Retention())
    history.settle()
    assert len(history.archived) >= 4
    for table in WRITTEN:
        found = paged(history.store, table, limit=1000)
        assert len(found) % 60 == 0  # whole commits
        assert [row[0] for row in found] == sorted({row[0] for row in found})
        assert [row[0] for row in selected(history.store, table)] == [row[0] for row in found]
        assert alike(rows_of(tmp_path / "lake", table), [found])
    history.close()


def test_a_lake_that_is_away_leaves_the_days_of_the_database_and_says_which_are_missing(
    history: History,
) -> None:
    history.settle()
    assert history.archived == [FIRST, FIRST + 1]
    root = history.root
    store = history.store
    whole = len(paged(store, "blocks"))
    (root / "lake").rename(root / "away")
    answer = asked(store, "SELECT count(*) FROM blocks")
    assert answer.error == ""
    assert answer.note.startswith("days 2024-10-04 to 2024-10-05 could not be read: No files found")
    page = store.read("blocks", 0, 100)
    assert page.rows == 100
    assert page.columns[OFFSET][0] > store.database.partitions.days[2].first_offset - 1
    assert page.note.startswith("days 2024-10-04 to 2024-10-05 could not be read")
    assert store.read("blocks", -100, 100).note == ""
    assert store.read("blocks", -whole, 100).rows == 100
    # A follower would count the days as read.
    reply = answer_read(store, lambda: None, wire.Read(1, "", 0, 100, tables={"blocks": 0}))
    assert reply.error.startswith("day 2024-10-04 could not be read: No files found")
    newest = store.database.partitions.days[2].first_offset
    assert answer_read(store, lambda: None, wire.Read(1, "", 0, 100, tables={"blocks": newest})).rows == 100
    # A question to other tables is none of the lake.
    assert asked(store, "SELECT count(*) FROM jobs").note == ""
    (root / "away").rename(root / "lake")
    assert len(paged(store, "blocks")) == whole
    assert asked(store, "SELECT count(*) FROM blocks").note == ""
    # Opened without it, as by a backup.
    history.close()
    history.open(lake=False)
    answer = asked(history.store, "SELECT count(*) FROM blocks")
    assert (
        answer.note == "days 2024-10-04 to 2024-10-05 could not be read: they are in a lake, and the collector has none"
    )
    assert history.store.read("blocks", 0, 100).note == answer.note


def test_a_damaged_file_and_one_with_the_same_rows_cost_their_days_and_no_other(history: History) -> None:
    history.settle()
    store = history.store
    whole = len(paged(store, "blocks"))
    data = history.root / "lake" / DATA
    path = next(data / file.path for file in store.database.partitions.archive.files(FIRST) if file.table == "blocks")
    content = path.read_bytes()
    other = path.with_name(path.name.replace(".parquet", "-again.parquet"))
    try:
        path.write_bytes(content[:20] + bytes(200) + content[220 : len(content) // 2])
        page = store.read("blocks", 0, 10_000)
        assert page.columns[OFFSET][0] >= store.database.partitions.days[1].first_offset
        assert page.note.startswith("day 2024-10-04 could not be read: Invalid Input Error")
        answer = asked(store, "SELECT count(*) FROM blocks")
        assert (answer.error, answer.note[:40]) == ("", "days 2024-10-04 to 2024-10-05 could not ")
        # A typing error is one, with the lake and without.
        assert "no_such" in asked(store, "SELECT no_such FROM blocks").error
        path.write_bytes(content)
        other.write_bytes(content)
        partitions = store.database.partitions
        first = next(file for file in partitions.archive.files(FIRST) if file.path == str(path.relative_to(data)))
        again = first._replace(path=str(other.relative_to(data)))
        partitions.archive = partitions.archive.replaced([FIRST], [*partitions.archive.files(FIRST), again])
        page = store.read("blocks", 0, 10_000)
        assert page.note == "day 2024-10-04 could not be read: files of the lake have the same rows"
        assert page.columns[OFFSET][0] >= partitions.days[1].first_offset
    finally:
        path.write_bytes(content)
        other.unlink(missing_ok=True)
    history.close()
    history.open()
    assert len(paged(history.store, "blocks")) == whole


def test_files_that_are_merged_later_take_the_place_of_those_before(fresh: History) -> None:
    history = fresh
    history.write(days=2)
    history.publisher.archiver.retention = Retention(hot_days=0)
    expected = logged(history.store, *WRITTEN)
    # As if it had been archived before its files were merged.
    while history.publisher.publish():
        pass
    while history.publisher.archive():
        pass
    before = {file.path for file in history.store.database.partitions.archive.files()}
    assert len({path for path in before if "blocks" in path}) > 2
    history.settle()
    after = {file.path for file in history.store.database.partitions.archive.files()}
    assert not before & after
    for path in before:
        (history.root / "lake" / DATA / path).unlink()
    assert alike([paged(history.store, table) for table in WRITTEN], expected)


def test_a_day_of_which_the_lake_lacks_a_row_stays(history: History, caplog: pytest.LogCaptureFixture) -> None:
    day = history.store.database.partitions.days[0]
    history.store.database.cursor().execute(
        f'INSERT INTO "{day.table("silences")}" SELECT * REPLACE (0 AS "{OFFSET}") FROM silences LIMIT 1'
    )
    with caplog.at_level(logging.ERROR):
        history.settle()
    assert history.archived == [FIRST + 1]
    assert caplog.messages == [
        "day 2024-10-04 stays in the database: the lake has 120 rows of table 'silences', expected 121"
    ]


def written_without_a_lake(fresh: History, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[Any, ...]]]:
    """Four days of rows, of which no lake has any; returns them."""
    with monkeypatch.context() as without:
        without.setattr(fresh.publisher, "publish", lambda: False)
        fresh.write(days=4)
    # Without a lake only the last mark of a stream is kept: no commit is known to have ended on an earlier day.
    fresh.store.published = 2**63 - 1
    fresh.store.database.compact_marks()
    return logged(fresh.store, *WRITTEN)


def test_a_log_that_gets_a_lake_later_leaves_the_database_day_by_day(
    fresh: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written_without_a_lake(fresh, monkeypatch)
    fresh.close()
    fresh.open()
    fresh.settle()
    assert fresh.archived == [FIRST, FIRST + 1]
    assert alike([selected(fresh.store, table) for table in WRITTEN], before)
    assert alike(rows_of(fresh.root / "lake", *WRITTEN), before)


def test_rows_that_an_earlier_version_filed_under_the_first_day_are_filed_under_their_own(
    fresh: History, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = written_without_a_lake(fresh, monkeypatch)
    with monkeypatch.context() as earlier:
        earlier.setattr(BatchReader, "by_day", lambda reader, batch, rows: iter([(batch.day, rows)]))
        earlier.setattr(Publisher, "refile", lambda publisher: 0)
        for _ in range(2):
            fresh.close()
            fresh.open()
            fresh.settle()
    assert fresh.archived == [FIRST], "the later days are in the database for good"
    assert not alike([selected(fresh.store, table) for table in WRITTEN], before), "their rows are there twice"
    fresh.close()
    fresh.open()
    with caplog.at_level(logging.INFO):
        fresh.settle()
    assert [line for line in caplog.messages if "rows of later days" in line] == [
        "6 files of the lake had rows of later days, which have files of their own now"
    ]
    assert fresh.archived == [FIRST, FIRST + 1]
    assert alike([selected(fresh.store, table) for table in WRITTEN], before)
    assert alike(rows_of(fresh.root / "lake", *WRITTEN), before)
    monkeypatch.setattr(Catalog, "replace", None)
    fresh.close()
    fresh.open()
    fresh.settle()


def test_a_column_that_is_younger_than_a_file_has_its_default(history: History) -> None:
    lake = history.root / "lake"
    (path,) = [path for path in lake.rglob("scores/cluster=c0/day=2024-10-04/*.parquet") if "-1-360-" in path.name]
    with duckdb.connect() as other:
        shutil.copy(path, f"{path}.whole")
        other.execute(f"COPY (SELECT * EXCLUDE (basis) FROM '{path}') TO '{path}.new' (FORMAT parquet)")
    Path(f"{path}.new").rename(path)
    history.settle()
    assert history.archived == [FIRST, FIRST + 1]
    bases = {(row[1][:2], row[-3]) for row in paged(history.store, "scores") if row[0] <= 360}
    assert LOG_COLUMNS["scores"].keys() >= {"basis"}
    assert ("c0", TABLES["scores"].defaults["basis"]) in bases
    assert len(selected(history.store, "scores")) == 4 * 120
    Path(f"{path}.whole").rename(path)


def test_a_collector_archives_days_while_it_takes_rows_and_answers(published: tuple[Path, Rows]) -> None:
    root, expected = published
    copy_log(root / "before", root)
    lake = root / "lake"
    with (
        collector_on(
            root / "log.duckdb",
            publisher_of=lambda store: Publisher(store, Lake.at(lake), seconds=0.0),
            lake=DirectoryPath(lake),
            retention=Retention(hot_days=0),
        ) as collector,
        LogReader(collector.endpoint, DEADLINE_SECONDS) as reader,
    ):
        publisher = collector.publisher
        assert publisher is not None
        wait_until(lambda: publisher.figures.archived == 3, "three days are in the lake only")
        offsets = [offset for page in reader.read_all("blocks") for offset in page.columns[OFFSET]]
        assert offsets == [row[0] for row in expected[0]]
        (count,) = arrow(reader.query("SELECT count(*) AS n FROM blocks").stream)
        assert count == (len(offsets),)
        with Producer(collector.endpoint) as producer:
            producer.hello()
            producer.append(1, "blocks", 10, blocks(10))
            producer.receive_ack(1)


QUERIES = {
    "job = 'c0/3.0.0'": 1,
    "'c0/3.0.0' = job AND ended_at > 1e9": 0,
    "b.job = 'c0/3.0.0' AND ended_at >= 0.5 AND ended_at < 3": 1,
    "job = 'c0/3.0.0' OR job = 'c1/1.0.0'": 2,
    "ended_at > 50.0": 0,
    "NOT job = 'c0/3.0.0'": 2,
    "job > 'c0/3.0.0'": 2,
    "job = 'zz'": 0,
    "job IN ('c0/3.0.0', 'zz')": 1,
    "b.job IN ('a', 'zz') AND ended_at < 1e9": 0,
    "job IN ('c0/3.0.0', NULL)": 2,
    "job NOT IN ('c0/3.0.0')": 2,
    "job IN ('c0/3.0.0', lower('ZZ'))": 2,
    "job = NULL": 2,
    "EXISTS (SELECT 1 FROM silences s WHERE b.job = 'c0/3.0.0' AND s.job = b.job)": 2,
    'job IN (SELECT job FROM scores WHERE "at" < 0.1)': 2,
}
"""Conditions on blocks b, and how many of the two files of an archived day are read for them."""


@pytest.mark.parametrize("condition", QUERIES)
def test_files_that_cannot_have_what_is_wanted_are_left_out_and_answers_are_the_same(
    history: History, condition: str
) -> None:
    query = f'SELECT "offset" FROM blocks b WHERE {condition} ORDER BY 1'
    before = arrow(asked(history.store, query).stream)
    history.settle()
    assert arrow(asked(history.store, query).stream) == before
    with history.store.cursor() as cursor:
        found = check(query, cursor)["blocks"]
    source = history.store.database.partitions.archive.source("blocks", [FIRST], found)
    assert source.count(".parquet") == QUERIES[condition]
    # The same within another query, and beside another place where the table stands.
    for text in (
        f"WITH found AS ({query}) SELECT * FROM found",
        f"SELECT * FROM ({query}) UNION ALL SELECT count(*) FROM blocks",
        f"WITH blocks AS (SELECT * FROM blocks) {query}",
    ):
        assert arrow(asked(history.store, text).stream)[: len(before)] == before


def by_day(root: Path, table: str) -> set[tuple[str, int]]:
    """The clusters and days of which the lake has rows, days counted from the first one."""
    with opened(root / "lake") as lake:
        cluster = "cluster" if table != "bands" else "''"
        query = f"SELECT DISTINCT {cluster}, day - DATE '2024-10-04' FROM lake.\"{table}\""
        return set(lake.execute(query).fetchall())


def test_each_table_and_cluster_leaves_the_lake_after_its_own_period(
    fresh: History, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = fresh
    caplog.set_level(logging.INFO)
    history.write(days=4)
    history.publisher.archiver.retention = Retention(hot_days=1)
    history.settle()
    assert history.archived == [FIRST, FIRST + 1]
    everything = {(cluster, day) for cluster in ("c0", "c1") for day in range(4)}
    # Days 2 and 3 are in the database: they stay, whatever their period.
    history.publisher.expirer.periods = Periods.read("3 silences=2 c1/=0 c1/blocks=1")
    before = len(list((history.root / "lake").rglob("*.parquet")))
    monkeypatch.setattr(expiry, "MAX_LEAVING", 3)
    catalog = history.publisher._catalog
    assert catalog is not None
    with catalog.reading():
        count = "SELECT max(snapshot_id) FROM ducklake_snapshots('lake')"
        (commits,) = catalog.connection.execute(count).fetchone() or ()
    while history.publisher.expire():
        pass
    with catalog.reading():
        assert catalog.connection.execute(count).fetchone() == (commits + 2,)
    assert history.publisher.figures.expired == 4, "silences of a day and two clusters, blocks of two days"
    assert before == len(list((history.root / "lake").rglob("*.parquet")))
    gone = [record.message for record in caplog.records if "have left the lake" in record.message]
    rows = sum(
        len(paged(history.store, table, 1000)) - len(found)
        for table, found in zip(WRITTEN, rows_of(history.root / "lake", *WRITTEN), strict=True)
    )
    (size,) = re.findall(r"and (\d+) bytes", *gone)
    assert 0 < int(size) < sum(path.stat().st_size for path in (history.root / "lake").rglob("*.parquet"))
    assert gone == [
        f"{rows} rows and {size} bytes of files have left the lake, of 2 days from 2024-10-04 to 2024-10-05:"
        " their periods were over"
    ]
    assert by_day(history.root, "scores") == everything
    assert by_day(history.root, "silences") == everything - {("c0", 0), ("c1", 0)}
    assert by_day(history.root, "blocks") == everything - {("c1", 0), ("c1", 1)}
    # A death before the log notes it.
    for reopened in (False, True):
        if reopened:
            history.close()
            history.open()
        history.settle()
        for table in WRITTEN:
            found = paged(history.store, table, 1000)
            assert alike(rows_of(history.root / "lake", table), [found])
            assert [row[0] for row in selected(history.store, table)] == [row[0] for row in found]
    # An hour later their files are gone.
    catalog = history.publisher._catalog
    assert catalog is not None
    catalog.expire(time.time() + 60.0)
    left = {history.root / "lake" / DATA / path for _, path, _ in catalog.files()}
    assert set((history.root / "lake").rglob("*.parquet")) == left
    assert alike([paged(history.store, "silences", 1000)], rows_of(history.root / "lake", "silences"))


def test_after_a_day_has_left_the_lake_questions_take_the_list_of_files_from_memory(
    fresh: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "MIN_VERDICT_DAYS", 0)
    fresh.write(days=5)
    fresh.settle()
    fresh.publisher.expirer.periods = Periods.read("2")
    while fresh.publisher.expire():
        pass
    fresh.settle()
    assert fresh.archived == [FIRST, FIRST + 1, FIRST + 2]
    assert {file.day for file in fresh.store.database.partitions.archive.files()} == {FIRST + 2}
    monkeypatch.setattr(Archive, "load", lambda *_: pytest.fail("the list is read again"))
    assert {row[0] for row in selected(fresh.store, "blocks")} == {row[0] for row in paged(fresh.store, "blocks")}


def test_no_day_leaves_the_lake_while_the_clock_is_behind_the_newest_rows(fresh: History) -> None:
    fresh.write(days=4)
    fresh.publisher.archiver.retention = Retention(hot_days=1)
    fresh.settle()
    fresh.day = FIRST - 1000
    for reopened in (False, True):
        if reopened:
            fresh.close()
            fresh.open()
        fresh.publisher.expirer.periods = Periods.read("1")
        fresh.store.apply_retention(Retention())
        assert not fresh.publisher.expire()
    fresh.day = FIRST + 4
    fresh.store.apply_retention(Retention())
    assert fresh.publisher.expire()


def test_a_day_of_a_clock_that_was_ahead_leaves_with_those_that_follow(
    fresh: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "MIN_VERDICT_DAYS", 0)
    fresh.close()
    fresh.day = FIRST + 1000
    fresh.open()
    fresh.write(days=1)
    fresh.day = FIRST
    fresh.store.calendar.confirm()
    fresh.write(days=4)
    fresh.publisher.archiver.retention = Retention(hot_days=1)
    fresh.settle()
    assert fresh.archived == [FIRST + 1000, FIRST, FIRST + 1]
    for reopened in (False, True):
        if reopened:
            fresh.close()
            fresh.open()
        for table in WRITTEN:
            assert alike(rows_of(fresh.root / "lake", table), [paged(fresh.store, table)])
    fresh.publisher.expirer.periods = Periods.read("2")
    fresh.settle()
    while fresh.publisher.expire():
        pass
    assert {day for _, day in by_day(fresh.root, "blocks")} == {1, 2, 3}


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "30 days": "'days' is no period, expected DAYS, TABLE=DAYS, CLUSTER/=DAYS or CLUSTER/TABLE=DAYS",
        "block=3": "'block=3' names no table, expected one of jobs, ",
        "marks=3": "'marks=3' names no table, expected one of jobs, ",
        "a/b/blocks=3": "'a/b/blocks=3' is no period",
        "hpc/bands=3": "'hpc/bands=3': rows of bands belong to no cluster, expected bands=DAYS",
        "blocks=-1": "'blocks=-1' is no period",
    }.items(),
)
def test_a_period_that_means_nothing_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        periods(text)


def test_sql_reaches_no_file_by_its_name(history: History) -> None:
    history.settle()
    file = history.root / "lake" / DATA / history.store.database.partitions.archive.files()[0].path
    assert asked(history.store, f"FROM '{file}'").error == f"query names '{file}', expected a table of the log"
    assert asked(history.store, f"FROM read_parquet('{file}')").error.startswith("query calls read_parquet()")
    assert asked(history.store, "FROM log.main.blocks").error == "query names log.blocks, expected blocks"
    # Views, subqueries and the schema make no difference.
    counts = [
        asked(history.store, query).stream
        for query in ("SELECT count(*) AS n FROM blocks", "SELECT (SELECT count(*) FROM main.blocks) AS n")
    ]
    assert counts[0] == counts[1]
