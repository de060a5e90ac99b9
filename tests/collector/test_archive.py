"""Days that are in the lake leave the database: every question has the same answer, and a kill costs no row."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.client.log_reader import LogReader
from barograph_collector.lake import catalog
from barograph_collector.lake.keep import Keep
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import Sealer
from barograph_collector.query.reader import answer_read
from barograph_collector.query.statement import check
from barograph_collector.settings import periods
from barograph_collector.storage import pages
from barograph_collector.storage.database import Database
from barograph_collector.storage.days.archive import SealedFile
from barograph_collector.storage.days.data_path import DATA
from barograph_collector.storage.days.partitions import Partitions
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET
from barograph_collector.storage.pages import PageReader
from helpers.archives import FIRST, WRITTEN, History, Rows, arrow, asked, followed, paged, selected
from helpers.lakes import alike, logged, opened, rows_of
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """A closed log of four days that are sealed, of which none is archived; and its rows."""
    history = History(tmp_path_factory.mktemp("published"), hot_days=100)
    history.write(days=4)
    history.seal()
    rows = logged(history.store, *WRITTEN)
    history.close()
    copy_log(history.root, history.root / "before")
    shutil.copytree(history.root / "lake", history.root / "whole")
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
    history.seal()
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
        assert 0 < store.read("blocks", -1000, 60).next_offset <= paged(store, "blocks")[59][0]
        assert store.database.row_counts() == counts
        now = store.database.heads
        assert all(heads[table] <= now[table] <= store.head for table in heads), "of a file the end of its period"


def test_a_follower_of_several_tables_sorts_each_file_once(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.seal()
    read = []
    sort = PageReader._sorted

    def counted(self: PageReader, file: SealedFile, after: int) -> Any:
        read.append(file)
        return sort(self, file, after)

    monkeypatch.setattr(PageReader, "_sorted", counted)
    followed(history.store, limit=7)
    archive = history.store.database.partitions.archive
    assert sorted(read) == sorted(file for table in WRITTEN for file in archive.files(table, history.archived))


def test_a_size_limit_archives_days_earlier_and_drops_none(history: History) -> None:
    history.sealer.retention = Retention(hot_days=100, bytes=1)
    history.seal()
    assert history.archived == [FIRST, FIRST + 1, FIRST + 2]
    assert history.store.apply_retention(Retention(bytes=1)) == 0
    assert history.store.apply_retention(Retention(days=3, hot_days=1)) == 1
    assert history.archived == [FIRST + 1, FIRST + 2]
    offsets = [row[0] for row in paged(history.store, "blocks")]
    assert min(offsets) >= history.store.database.partitions.first_offset > 1
    assert [row[0] for row in selected(history.store, "blocks")] == offsets


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("name", ["_create_views", "checkpoint"])
@pytest.mark.parametrize("after", [False, True])
def test_a_death_while_a_day_is_archived_loses_and_doubles_nothing(
    history: History, published: tuple[Path, Rows], monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    root, expected = published
    owner = Partitions if name == "_create_views" else Database
    function = getattr(owner, name)

    def dies(*arguments: Any, **named: Any) -> Any:
        if after:
            function(*arguments, **named)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(owner, name, dies)
        with pytest.raises(Killed):
            history.store.apply_retention(history.sealer.retention)
    copy_log(root, root / "left")
    history.close()
    copy_log(root / "left", root)
    history.open()
    assert alike([paged(history.store, table, 1000) for table in WRITTEN], expected)
    history.seal()
    assert history.archived == [FIRST, FIRST + 1]
    assert alike([paged(history.store, table, 1000) for table in WRITTEN], expected)
    assert alike([selected(history.store, table) for table in WRITTEN], expected)


def test_a_lake_that_is_away_leaves_the_days_of_the_database_and_says_which_are_missing(
    history: History,
) -> None:
    history.seal()
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
    reply = answer_read(store, bool, wire.Read(1, "", 0, 100, tables={"blocks": 0}))
    assert reply.error.startswith("day 2024-10-04 could not be read: No files found")
    newest = store.database.partitions.days[2].first_offset
    assert answer_read(store, bool, wire.Read(1, "", 0, 100, tables={"blocks": newest})).rows == 100
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


def test_a_damaged_file_costs_its_day_and_no_other(history: History) -> None:
    history.seal()
    store = history.store
    whole = len(paged(store, "blocks"))
    data = history.root / "lake" / DATA
    path = data / store.database.partitions.archive.files("blocks", [FIRST])[0].name(store.database.name).path
    content = path.read_bytes()
    try:
        path.write_bytes(content[:20] + bytes(200) + content[220 : len(content) // 2])
        page = store.read("blocks", 0, 10_000)
        assert page.columns[OFFSET][0] >= store.database.partitions.days[1].first_offset
        assert page.note.startswith("day 2024-10-04 could not be read: Invalid Input Error")
        answer = asked(store, "SELECT count(*) FROM blocks")
        assert (answer.error, answer.note[:40]) == ("", "days 2024-10-04 to 2024-10-05 could not ")
        # A typing error is one, with the lake and without.
        assert "no_such" in asked(store, "SELECT no_such FROM blocks").error
    finally:
        path.write_bytes(content)
    history.close()
    history.open()
    assert len(paged(history.store, "blocks")) == whole


def test_a_log_that_gets_a_lake_later_leaves_the_database_day_by_day(fresh: History) -> None:
    fresh.close()
    fresh.open(lake=False)
    fresh.write(days=4)
    fresh.store.database.compact_marks()
    before, last = logged(fresh.store, *WRITTEN), fresh.store.head
    fresh.close()
    fresh.open()
    fresh.write(days=1)
    fresh.seal()
    assert fresh.archived == [FIRST, FIRST + 1, FIRST + 2]
    assert alike([[row for row in rows if row[0] <= last] for rows in rows_of(fresh.root / "lake", *WRITTEN)], before)


def test_a_column_that_is_younger_than_a_file_has_its_default(history: History) -> None:
    history.seal()
    with history.store.cursor() as log:
        log.execute("UPDATE lake_files SET width = width - 1 WHERE name = 'scores'")
    files = [file for file in history.store.database.sealed_files() if file.table == "scores"]
    data, youngest = history.root / "lake" / DATA, list(LOG_COLUMNS["scores"])[-1]
    for file in files:
        path = data / file.name(history.store.database.name).path
        with duckdb.connect() as other:
            other.execute(f"COPY (SELECT * EXCLUDE ({youngest}) FROM '{path}') TO '{path}.new' (FORMAT parquet)")
        shutil.copy(path, f"{path}.whole")
        Path(f"{path}.new").rename(path)
    history.close()
    history.open()
    rows = paged(history.store, "scores", 1000)
    cut = history.store.database.partitions.days[2].first_offset
    assert {row[-1] for row in rows if row[0] < cut} == {TABLES["scores"].defaults[youngest]}
    assert len(selected(history.store, "scores")) == len(rows) == 4 * 120
    for path in data.rglob("*.whole"):
        path.rename(path.with_suffix(""))


def test_a_collector_archives_days_while_it_takes_rows_and_answers(published: tuple[Path, Rows]) -> None:
    root, expected = published
    copy_log(root / "before", root)
    lake = Lake.at(root / "lake")
    with (
        collector_on(
            root / "log.duckdb",
            sealer_of=lambda store: Sealer(store, lake),
            lake=lake.data,
            period_seconds=1.0,
            retention=Retention(hot_days=0),
        ) as collector,
        LogReader(collector.endpoint, DEADLINE_SECONDS) as reader,
    ):
        with Producer(collector.endpoint) as producer:
            producer.hello()
            producer.append(1, "blocks", 10, blocks(10))
            producer.receive_ack(1)
        days = collector.store.database.partitions
        wait_until(lambda: sum(day.archived for day in days.days) == 3, "three days are in the lake only")
        offsets = [offset for page in reader.read_all("blocks") for offset in page.columns[OFFSET]]
        assert offsets[: len(expected[0])] == [row[0] for row in expected[0]]
        (count,) = arrow(reader.query("SELECT count(*) AS n FROM blocks").stream)
        assert count == (len(offsets),) == (len(expected[0]) + 10,)
    shutil.rmtree(root / "lake")
    root.joinpath("whole").rename(root / "lake")


QUERIES = {
    "job = 'c0/3.0.0'": 2,
    "'c0/3.0.0' = job AND ended_at > 1e9": 0,
    "b.job = 'c0/3.0.0' AND ended_at >= 0.5 AND ended_at < 3": 2,
    "job = 'c0/3.0.0' OR job = 'c1/1.0.0'": 2,
    "ended_at > 50.0": 0,
    "NOT job = 'c0/3.0.0'": 2,
    "job > 'c0/3.0.0'": 2,
    "job = 'zz'": 0,
    "job IN ('c0/3.0.0', 'zz')": 2,
    "b.job IN ('a', 'zz') AND ended_at < 1e9": 0,
    "job IN ('c0/3.0.0', NULL)": 2,
    "job NOT IN ('c0/3.0.0')": 2,
    "job IN ('c0/3.0.0', lower('ZZ'))": 2,
    "job = NULL": 2,
    "EXISTS (SELECT 1 FROM silences s WHERE b.job = 'c0/3.0.0' AND s.job = b.job)": 2,
    "job IN (SELECT job FROM scores WHERE time < 0.1)": 2,
}
"""Conditions on blocks b, and how many of the two files of an archived day are read for them."""


@pytest.mark.parametrize("condition", QUERIES)
def test_files_that_cannot_have_what_is_wanted_are_left_out_and_answers_are_the_same(
    history: History, condition: str
) -> None:
    query = f"SELECT log_offset FROM blocks b WHERE {condition} ORDER BY 1"
    before = arrow(asked(history.store, query).stream)
    history.seal()
    assert arrow(asked(history.store, query).stream) == before
    with history.store.cursor() as cursor:
        found = check(query, cursor)["blocks"]
    files = history.store.database.partitions.archive.files("blocks", [FIRST], found)
    assert len(files) == QUERIES[condition]
    # The same within another query, and beside another place where the table stands.
    for text in (
        f"WITH found AS ({query}) SELECT * FROM found",
        f"SELECT * FROM ({query}) UNION ALL SELECT count(*) FROM blocks",
        f"WITH blocks AS (SELECT * FROM blocks) {query}",
    ):
        assert arrow(asked(history.store, text).stream)[: len(before)] == before


def days_of(root: Path, table: str) -> set[int]:
    """The days of which the lake has rows, counted from the first one."""
    with opened(root / "lake") as lake:
        query = f"SELECT DISTINCT day - DATE '2024-10-04' FROM lake.\"{table}\""
        return {day for (day,) in lake.execute(query).fetchall()}


def test_each_table_leaves_the_lake_after_its_own_time(fresh: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history = fresh
    history.write(days=4)
    history.seal()
    assert history.archived == [FIRST, FIRST + 1]
    # Days 2 and 3 are in the database: they stay, whatever their time.
    history.sealer.keep = Keep.read("3 silences=1 blocks=2")
    files = len(list((history.root / "lake/data/main").rglob("*.parquet")))
    marks = len(list((history.root / "lake/data/marks").rglob("*.parquet")))
    monkeypatch.setattr(catalog, "KEEP_SECONDS", -60)
    assert history.sealer.expire()
    assert not history.sealer.expire()
    assert history.sealer.figures.files_expired == 6, "silences of two days, blocks of one, in two periods each"
    assert files - len(list((history.root / "lake/data/main").rglob("*.parquet"))) == 6
    history.sealer.keep = Keep.read("1 silences=1 blocks=2")
    history.sealer.expire()
    assert marks - len(list((history.root / "lake/data/marks").rglob("*.parquet"))) == 4
    for reopened in (False, True):
        if reopened:
            history.close()
            history.open()
            history.write(days=1)
            history.seal()
        assert days_of(history.root, "scores") >= {0, 1, 2, 3}, "verdicts stay for a month"
        assert days_of(history.root, "silences") >= {2, 3}
        assert not days_of(history.root, "silences") & {0, 1}
        assert days_of(history.root, "blocks") >= {1, 2, 3}
        for table in WRITTEN:
            found = paged(history.store, table, 1000)
            assert alike(rows_of(history.root / "lake", table), [found])
            assert [row[0] for row in selected(history.store, table)] == [row[0] for row in found]


def test_no_day_leaves_the_lake_while_the_clock_is_behind_the_newest_rows(fresh: History) -> None:
    fresh.write(days=4)
    fresh.seal()
    fresh.day = FIRST - 1000
    fresh.close()
    fresh.open()
    fresh.sealer.keep = Keep.read("1")
    fresh.store.apply_retention(Retention())
    assert not fresh.sealer.expire()
    fresh.day = FIRST + 4
    fresh.store.apply_retention(Retention())
    assert fresh.sealer.expire()


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "30 days": "'days' is no period, expected DAYS or TABLE=DAYS",
        "block=3": "'block=3' names no table, expected one of jobs, ",
        "hpc/bands=3": "'hpc/bands=3' is no period",
        "blocks=-1": "'blocks=-1' is no period",
    }.items(),
)
def test_a_time_that_means_nothing_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        periods(text)


def test_sql_reaches_no_file_by_its_name(history: History) -> None:
    history.seal()
    file = history.root / "lake" / DATA / history.store.database.sealed_files()[0].name("x").path
    assert asked(history.store, f"FROM '{file}'").error == f"query names '{file}', expected a table of the log"
    assert asked(history.store, f"FROM read_parquet('{file}')").error.startswith("query calls read_parquet()")
    assert asked(history.store, "FROM log.main.blocks").error == "query names log.main.blocks, expected blocks"
    # Views, subqueries and the schema make no difference.
    counts = [
        asked(history.store, query).stream
        for query in ("SELECT count(*) AS n FROM blocks", "SELECT (SELECT count(*) FROM main.blocks) AS n")
    ]
    assert counts[0] == counts[1]
