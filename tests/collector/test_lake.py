"""Sealed periods: each row is in the lake once, under a name that follows from its offset, whatever dies when."""

from __future__ import annotations

import contextlib
import errno
import logging
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from barograph_agent.protocol.tables import TABLES
from barograph_agent.system.clock import Clock
from barograph_agent.system.system import SYSTEM
from barograph_collector.lake.catalog import CATALOG_FILE, Catalog
from barograph_collector.lake.files import LakeFiles
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import SILENT_SECONDS, Sealer
from barograph_collector.storage.days import periods
from barograph_collector.storage.days.data_path import DataPath, sealed_periods
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.store import PERIOD_SECONDS, Store
from helpers.clocks import calendar_at
from helpers.lakes import SEAL_FOREVER, alike, any_rows, entry, kill_sealers, logged, opened, rows_of
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until

START = 20_000 * DAY_SECONDS


class Log:
    """A log with a lake, and its clock."""

    def __init__(self, root: Path, lake: Lake | None = None, name: str = "log") -> None:
        self.now = START
        self.path, self.lake = root / f"{name}.duckdb", lake or Lake.at(root / "lake")
        self.system = calendar_at(lambda: self.now)
        self.open()

    def open(self) -> None:
        """After `close`, or the death of the process."""
        self.store = Store(self.path, system=self.system, lake=self.lake.data)
        self.sealer = Sealer(self.store, self.lake, self.system)

    def close(self) -> None:
        self.sealer.close()
        self.store.close()

    def fill(self, seed: int, commits: int = 1, tables: Iterable[str] = ("bands", "runs", "scores")) -> None:
        """Some rows of tables, and more of blocks; then the period ends."""
        numbers = np.random.default_rng(seed)
        for _ in range(commits):
            entries = [any_rows(table, int(numbers.integers(1, 5)), numbers) for table in tables]
            count = int(numbers.integers(1, 50))
            self.store.commit(
                [*entries, entry("blocks", count, blocks(count, self.store.head))], {"s": self.store.head}
            )
        self.now += PERIOD_SECONDS

    def seal(self) -> None:
        """All that has ended."""
        while self.sealer.seal():
            pass

    def is_in_lake(self, *tables: str) -> bool:
        """Whether the lake has the rows of these tables, or of all, as other programs read it."""
        self.sealer.close()
        return alike(rows_of(Path(self.lake.data.lake), *tables or TABLES), logged(self.store, *tables or TABLES))


@pytest.fixture
def log(tmp_path: Path) -> Any:
    made = Log(tmp_path)
    yield made
    made.close()


def test_a_period_is_a_file_of_each_table_with_its_offsets_in_the_name(log: Log, tmp_path: Path) -> None:
    log.fill(1, commits=3, tables=TABLES)
    middle = log.store.head
    log.fill(2, tables=TABLES)
    log.store.commit([any_rows("runs", 3, np.random.default_rng(3))], {"s": log.store.head})
    log.seal()
    name, data = log.store.database.name, tmp_path / "lake/data"
    last = log.store.database.sealed
    assert middle < last == log.store.head - 3, "the present period has not ended"
    found = {str(path.relative_to(data)) for path in data.rglob("*.parquet")}
    spans = (f"{name}-1-{middle}", f"{name}-{middle + 1}-{last}")
    folders = (*(f"main/{table}" for table in TABLES), "marks")
    assert found == {f"{folder}/day=2024-10-04/{span}.parquet" for folder in folders for span in spans}
    assert log.sealer.figures.files == 2 * len(TABLES)
    assert log.sealer.figures.rows == last == log.sealer.figures.last_offset
    jobs = pq.read_table(data / f"main/blocks/day=2024-10-04/{spans[0]}.parquet")["job"].to_pylist()
    assert jobs == sorted(jobs)
    log.now += PERIOD_SECONDS
    log.seal()  # also of a log that takes no more rows
    assert log.store.database.sealed == log.store.head
    assert log.is_in_lake()
    with opened(tmp_path / "lake") as lake:
        query = "SELECT count(*), count(sum_cubes), count(min_seconds) FROM lake.blocks WHERE job = 'test/1.0.0'"
        counted, *following = lake.execute(query).fetchone() or ()
    assert counted > 0
    assert following == [0, 0]


def test_a_period_ends_with_its_hour_its_day_and_its_most_rows(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periods, "MAX_PERIOD_ROWS", 100)

    def commit(rows: int) -> None:
        log.store.commit([any_rows("runs", rows, np.random.default_rng(1))], {"s": log.store.head + 1})

    commit(60)
    log.now += PERIOD_SECONDS - 1
    commit(20)
    log.now += 1
    commit(100)
    commit(10)
    log.now = START + 10  # a clock that goes back ends none
    commit(10)
    log.now = START + DAY_SECONDS
    commit(5)
    log.seal()
    found = [(period.first, period.last) for period in sealed_periods(log.lake.data)]
    assert found == [(1, 80), (81, 180), (181, 200)]


class Killed(BaseException):
    """The process is gone."""


STEPS: list[tuple[type, str]] = [
    *((DataPath, name) for name in ("put", "begin", "finish", "unlink")),
    *((LakeFiles, name) for name in ("claim", "discard", "put", "write_marks")),
    *((Catalog, name) for name in ("sync", "_create_tables")),
    (periods, "store_files"),  # type: ignore[list-item]
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[1])
@pytest.mark.parametrize("after", [False, True])
def test_a_death_in_any_step_loses_and_doubles_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str], after: bool
) -> None:
    owner, name = step
    function = getattr(owner, name)
    log.fill(1)
    for number in range(3):
        deaths = number
        with monkeypatch.context() as dying:

            def dies(*arguments: Any, **named: Any) -> Any:
                nonlocal deaths
                found = function(*arguments, **named) if after else None
                if deaths == 0:
                    raise Killed
                deaths -= 1
                return found if after else function(*arguments, **named)

            dying.setattr(owner, name, dies)
            with contextlib.suppress(Killed):
                log.seal()
        log.sealer.close()  # as the death of the process does
        log.store.close()
        log.open()
        log.fill(number + 2)
    log.seal()
    assert log.store.database.sealed == log.store.head
    assert log.is_in_lake("blocks", "runs")
    names = [path.name for path in Path(log.lake.data.root).rglob("*.parquet*")]
    assert len(names) == 5 * len(sealed_periods(log.lake.data)), "nothing else is left"


@pytest.mark.parametrize("seed", range(2))
def test_each_row_is_in_the_lake_once_whatever_fails(log: Log, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance, failures = random.Random(seed), 0

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def perhaps() -> None:
            if chance.random() < 0.1:
                raise chance.choice([OSError(errno.ENOSPC, "full"), duckdb.IOException("lost"), LakeError("x")])

        def call(*arguments: Any, **named: Any) -> Any:
            perhaps()
            found = function(*arguments, **named)
            perhaps()
            return found

        return call

    with monkeypatch.context() as fails:
        for owner, name in STEPS:
            fails.setattr(owner, name, failing(getattr(owner, name)))
        for number in range(12):
            numbers = np.random.default_rng(1000 * seed + number)
            log.store.commit([any_rows(table, 50, numbers, 2) for table in ("blocks", "runs")], {"s": number + 1})
            log.now += chance.choice([0.3, 1.0]) * PERIOD_SECONDS
            try:
                log.seal()
            except (OSError, duckdb.Error, LakeError):
                failures += 1
                log.sealer.close()
    assert failures > 1
    log.now += PERIOD_SECONDS
    log.seal()
    assert log.is_in_lake("blocks", "runs")


@pytest.mark.process
def test_each_row_is_in_the_lake_once_after_kills_at_any_instant(tmp_path: Path) -> None:
    arguments = (str(tmp_path), str(Path(__file__).parents[1]), str(tmp_path / "lake"), "")
    kill_sealers([sys.executable, "-c", SEAL_FOREVER, *arguments], 5, random.Random(3))
    log = Log(tmp_path)
    log.now = 4e9
    log.seal()
    assert log.store.head >= 5 * 400
    assert log.is_in_lake("blocks", "runs")
    log.close()


def test_the_catalog_is_made_again_from_the_names_of_the_files(log: Log, tmp_path: Path) -> None:
    log.fill(1)
    log.seal()
    assert log.is_in_lake()
    (tmp_path / "lake" / CATALOG_FILE).unlink()
    log.fill(2)
    log.seal()
    assert log.is_in_lake()
    catalog = Catalog(log.lake, tmp_path / "scratch")
    catalog.make_anew()
    catalog.close()
    assert log.is_in_lake()


def test_a_store_that_vanishes_is_one_line_and_the_rows_follow_once_it_is_back(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.fill(1)
    log.sealer.poll()
    lake = tmp_path / "lake"
    lake.rename(tmp_path / "away")
    lake.mkdir()  # an empty mount point
    caplog.set_level(logging.INFO)
    for number in range(3):
        log.fill(number + 2)
        log.sealer._due = 0.0
        log.sealer.poll()
    assert log.sealer.figures.failures == 3
    assert log.sealer.figures.lag_seconds(log.now) == 3 * PERIOD_SECONDS
    (line,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith(f"the lake {lake} has no barograph-lake, expected it: is its file system mounted?")
    assert not list(lake.rglob("*"))
    lake.rmdir()
    (tmp_path / "away").rename(lake)
    log.sealer._due = 0.0
    log.sealer.poll()
    assert caplog.records[-1].message == "the lake takes rows again"
    assert log.sealer.figures.lag_seconds(log.now) == 0.0
    assert log.is_in_lake()


def test_a_full_disk_of_the_lake_keeps_its_reserve_and_is_one_line(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(DataPath, "free_bytes", 10**6)
    log.sealer.reserve = 10**9
    for _ in range(3):
        log.fill(2)
        log.sealer._due = 0.0
        log.sealer.poll()
    assert log.sealer.figures.failures == 3
    (line,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert "is full: it has 1 MB free, expected 1,000 MB (reserve); the log goes on, and keeps the rows" in line
    assert not list(Path(log.lake.data.root).rglob("*.parquet*"))


def test_a_catalog_of_another_version_or_another_program_is_refused(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "lake" / CATALOG_FILE
    log.fill(1)
    log.seal()
    log.sealer.close()
    with duckdb.connect(file) as catalog:
        catalog.execute("UPDATE ducklake_metadata SET value = '99.0' WHERE key = 'version'")
    with pytest.raises(LakeError, match=r"is 99\.0, .*; another version of DuckLake has written it$"):
        log.seal()
    log.sealer.close()
    with duckdb.connect(file) as catalog:
        catalog.execute("UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'")
        catalog.execute("UPDATE ducklake_column SET column_name = 'later' WHERE column_name = 'onset_at'")
    with pytest.raises(LakeError, match="table 'scores' with a column 'later'"):
        log.seal()
    log.sealer.close()
    file.write_text("no catalog")
    with pytest.raises(LakeError, match=r"^cannot use the catalog of the lake .*not a valid DuckDB database file"):
        log.seal()


def test_two_logs_have_one_lake(log: Log, tmp_path: Path) -> None:
    other = Log(tmp_path, log.lake, "other")
    for number in range(2):
        for one in (log, other):
            one.fill(number)
            one.seal()
            one.sealer.close()
    with opened(tmp_path / "lake") as connection:
        found = connection.execute("SELECT collector, log_offset FROM lake.runs ORDER BY ALL").fetchall()
    stores = (log.store, other.store)
    assert found == sorted((store.database.name, row[0]) for store in stores for row in logged(store, "runs")[0])
    other.close()


@pytest.mark.parametrize("stays", [False, True])
def test_a_commit_waits_for_a_reader_of_the_catalog_and_not_for_ever(log: Log, tmp_path: Path, stays: bool) -> None:
    passed = [0.0]
    log.fill(1)
    log.seal()
    log.sealer.close()
    log.fill(2)
    path = tmp_path / "lake" / CATALOG_FILE
    script = f"import duckdb; c = duckdb.connect('{path}', read_only=True); input(print(1))"
    pipe = subprocess.PIPE
    reader = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "1\n"

    def sleep(seconds: float) -> None:
        passed[0] += seconds
        if not stays and reader.poll() is None:
            reader.communicate("\n")

    clock = Clock()
    clock.monotonic = lambda: passed[0]  # type: ignore[method-assign]
    clock.sleep = sleep  # type: ignore[method-assign]
    log.sealer = Sealer(log.store, log.lake, SYSTEM._replace(clock=clock))
    if stays:
        with pytest.raises(LakeError, match=rf"has been open in \S+ \(PID {reader.pid}\) for 10 s, expected that"):
            log.seal()
        assert passed[0] >= 10.0
        reader.communicate("\n")
    log.seal()
    assert log.is_in_lake()


def test_of_two_collectors_with_copies_of_one_log_only_one_seals(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    first = Log(tmp_path / "state")
    first.fill(1)
    first.seal()
    first.close()
    shutil.copytree(tmp_path / "state", tmp_path / "copy", ignore=shutil.ignore_patterns("lake"))
    first.open()
    second = Log(tmp_path / "copy", first.lake)
    second.now = first.now
    assert not first.sealer.seal()
    assert not second.sealer.seal()
    second.fill(2)
    first.fill(3, commits=2)
    second.seal()
    for _ in range(2):  # as the collector tries it again, and after a restart
        with pytest.raises(LakeError, match=r"another process seals periods of log .*: stop one of the two"):
            first.seal()
        first.sealer.close()
    first.close()
    first.open()
    with pytest.raises(LakeError, match="another process seals periods of log"):
        first.seal()
    second.sealer.close()
    second.fill(4)
    second.seal()
    assert second.is_in_lake()
    first.close()
    second.close()


def test_the_lake_of_another_time_is_refused(log: Log, tmp_path: Path) -> None:
    log.fill(1)
    log.seal()
    log.close()
    shutil.copytree(tmp_path / "lake", tmp_path / "older")
    log.open()
    log.fill(2)
    log.seal()
    log.close()
    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "older").rename(tmp_path / "lake")
    log.open()
    log.fill(3)
    with pytest.raises(
        LakeError, match=r"has rows of log \w+ up to \d+, expected up to \d+ at least: it is an older copy"
    ):
        log.seal()


def test_retention_drops_no_day_that_the_lake_lacks(log: Log) -> None:
    for day in range(4):
        log.now = START + day * DAY_SECONDS
        log.fill(day)
    assert log.store.apply_retention(Retention(days=1)) == 0
    log.seal()
    kept = logged(log.store, "blocks")
    assert log.store.apply_retention(Retention(days=1)) == 2
    assert alike(rows_of(Path(log.lake.data.lake), "blocks"), kept)


def test_acknowledgements_do_not_wait_for_a_lake_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, entered = SYSTEM.threads.event(), SYSTEM.threads.event()
    sync = Catalog.sync

    def hang(self: Catalog, *arguments: Any) -> None:
        entered.set()
        hanging.wait(DEADLINE_SECONDS)
        sync(self, *arguments)

    monkeypatch.setattr(Catalog, "sync", hang)
    lake = Lake.at(tmp_path / "lake")
    with (
        collector_on(
            tmp_path / "log.duckdb", sealer_of=lambda store: Sealer(store, lake), lake=lake.data, period_seconds=0.1
        ) as collector,
        Producer(collector.endpoint) as producer,
    ):
        producer.hello()
        producer.append(1, "blocks", 10, blocks(10))
        producer.receive_ack(1)
        assert entered.wait(DEADLINE_SECONDS)
        for seq in range(2, 200):
            producer.append(seq, "blocks", 10, blocks(10, 10 * seq))
            producer.receive_ack(seq)
        assert not hanging.is_set()
        hanging.set()
        wait_until(lambda: collector.sealer and collector.sealer.figures.last_offset >= 1990, "rows in the lake")
    (rows,) = rows_of(tmp_path / "lake", "blocks")
    assert len({row[0] for row in rows}) == len(rows) == 1990


def test_a_step_that_hangs_is_one_line(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passed = 0.0
    monkeypatch.setattr(log.sealer, "_monotonic", lambda: passed)
    sync, seen = Catalog.sync, list[int]()

    def slow(self: Catalog, *arguments: Any) -> None:
        nonlocal passed
        for seconds in (SILENT_SECONDS, 1.0, 1.0):
            passed += seconds
            log.sealer.watch()
            text = "registering rows 1 to .* has taken more than 120 s; the log goes on"
            seen.append(sum(bool(re.search(text, line)) for line in caplog.messages))
        sync(self, *arguments)

    log.sealer.seal()
    monkeypatch.setattr(Catalog, "sync", slow)
    log.fill(1)
    log.sealer.poll()
    assert seen == [0, 1, 1]
