"""The lake has each row of the log once, whatever fails or dies on the way, and the log never waits for it."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from barograph_agent.protocol.tables import TABLES
from barograph_agent.system.clock import Clock
from barograph_agent.system.disk import DISK
from barograph_agent.system.system import SYSTEM
from barograph_collector.lake import lease
from barograph_collector.lake.batches import BatchReader
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.compaction import EXPIRE_SECONDS, MIN_FILES, Compactor
from barograph_collector.lake.files import MAX_CLUSTERS, OTHERS, FileWriter
from barograph_collector.lake.lease import CATALOG_FILE, FileLease
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import RETRY_SECONDS, SILENT_SECONDS, LakeParts, Publisher
from barograph_collector.storage.days import extensions
from barograph_collector.storage.days.extensions import LakeError, extension
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.store import Store
from helpers.clocks import calendar_at, system_at
from helpers.lakes import alike, any_rows, entry, kill_publishers, loaded, logged, opened, rows_of
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until


def fill(store: Store, seed: int, commits: int = 1) -> None:
    """Some rows of every table, and more of blocks."""
    numbers = np.random.default_rng(seed)
    for number in range(commits):
        entries = [any_rows(table, int(numbers.integers(1, 5)), numbers) for table in TABLES]
        count = int(numbers.integers(1, 50))
        store.commit([*entries, entry("blocks", count, blocks(count, store.head))], {"s": seed * 1000 + number})


def publish(publisher: Publisher) -> None:
    """Publish everything there is."""
    while publisher.publish():
        pass


def same(store: Store, lake: Path, *tables: str) -> bool:
    """Whether these tables of the lake, or all, have the rows of the log."""
    return alike(rows_of(lake, *tables or TABLES), logged(store, *tables or TABLES))


def test_every_table_is_in_the_lake_with_its_values_in_directories_of_cluster_and_day(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb", system=calendar_at(lambda: 20_000 * DAY_SECONDS)) as store:
        fill(store, 1, commits=3)
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        publish(publisher)
        publisher.close()
        assert same(store, tmp_path / "lake")
        places = {str(path.parent.relative_to(tmp_path / "lake/data/main")) for path in tmp_path.rglob("*.parquet")}
        assert {"blocks/cluster=test/day=2024-10-04", "bands/day=2024-10-04"} <= places
        named = {path.stem.rpartition("-")[0] for path in tmp_path.rglob("*.parquet")}
        assert named == {f"{store.database.name}-1-{store.head}"}
        assert publisher.figures.rows == store.head == publisher.figures.position
        assert publisher.figures.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
        with opened(tmp_path / "lake") as lake:
            query = "SELECT count(*), count(sum_cubes), count(min_seconds) FROM lake.blocks WHERE job = 'test/1.0.0'"
            counted, *following = lake.execute(query).fetchone() or ()
        assert counted > 0
        assert following == [0, 0]


class Killed(BaseException):
    """The process is gone."""


class Failing:
    """Replaces a function: before or after it, at random, the process dies or the store fails."""

    def __init__(self, function: Callable[..., Any], chance: random.Random) -> None:
        self._function, self._chance = function, chance

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._perhaps()
            result = self._function(instance, *arguments, **named)
            self._perhaps()
            return result

        return call

    def _perhaps(self) -> None:
        if self._chance.random() < 0.1:
            raise self._chance.choice(
                [Killed(), OSError(errno.ENOSPC, "No space left on device"), duckdb.IOException("lost"), LakeError("x")]
            )


@pytest.mark.parametrize("seed", range(2))
def test_each_row_is_in_the_lake_once_whatever_fails_and_dies(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, now = random.Random(seed), 20_000 * DAY_SECONDS
    monkeypatch.setattr("barograph_collector.lake.batches.BatchReader.limit", 400)
    monkeypatch.setattr("barograph_collector.lake.compaction.MIN_FILES", 3)
    parts = LakeParts(compactor=lambda name, system: Compactor(name, system, keep=0.0, every=0.0))
    merged = 0
    failures = deaths = 0
    with Store(tmp_path / "log.duckdb", system=calendar_at(lambda: now)) as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"), seconds=0.0, parts=parts)
        with monkeypatch.context() as failing:
            for owner, names in (
                (FileWriter, ("_copy", "merge")),
                (Catalog, ("open", "commit", "replace", "expire")),
                (Publisher, ("_reach",)),
            ):
                for name in names:
                    failing.setattr(owner, name, Failing(getattr(owner, name), chance))
            for number in range(30):
                now += chance.choice([0, 0, 0, 1]) * DAY_SECONDS
                numbers = np.random.default_rng(1000 * seed + number)
                store.commit([any_rows("blocks", 150, numbers, 2), any_rows("runs", 20, numbers, 2)], {"s": number + 1})
                for action in ("publish", "compact"):
                    try:
                        merged += getattr(publisher, action)() and action == "compact"
                    except Killed:
                        deaths += 1
                        publisher.close()  # as the death of the process does
                        publisher = Publisher(store, Lake.at(tmp_path / "lake"), seconds=0.0, parts=parts)
                    except (OSError, duckdb.Error, LakeError):
                        failures += 1
                        publisher.close()
        assert deaths > 1
        assert merged
        assert failures > 1
        publish(publisher)
        publisher.close()
        assert same(store, tmp_path / "lake", "blocks", "runs")


def test_small_files_become_one_sorted_by_job_and_old_ones_are_deleted_an_hour_later(tmp_path: Path) -> None:
    now, lake = time.time(), tmp_path / "lake"  # commits have the time of this machine
    with Store(tmp_path / "log.duckdb", system=system_at(lambda: now)) as store:
        publisher = Publisher(store, Lake.at(lake), system_at(lambda: now))

        def batches(count: int) -> None:
            for _ in range(count):
                numbers = np.random.default_rng(store.head)
                store.commit(
                    [any_rows("blocks", 50, numbers, 1), any_rows("events", 1, numbers)], {"s": store.head + 1}
                )
                publish(publisher)

        def files() -> set[str]:
            return {path.name for path in (lake / "data/main/blocks").rglob("*.parquet")}

        batches(MIN_FILES - 1)
        assert not publisher.compact()
        batches(1)
        before = files()
        while publisher.compact():
            pass
        (merged,) = files() - before
        assert merged.startswith(f"{store.database.name}-1-{store.head}-")
        (path,) = lake.rglob(f"blocks/**/{merged}")
        jobs = pq.read_table(path, columns=["job"])["job"].to_pylist()
        assert jobs == sorted(jobs)
        assert same(store, lake, "blocks", "events")
        now += 3601.0 + EXPIRE_SECONDS
        publisher.compact()
        assert files() == {merged}
        # Of a day that has ended, two are enough.
        batches(2)
        now += DAY_SECONDS
        batches(1)
        while publisher.compact():
            pass
        with opened(lake) as reader:
            query = "SELECT parse_dirpath(data_file) FROM ducklake_list_files('lake', 'blocks')"
            days = [day for (day,) in reader.execute(query).fetchall()]
        assert len(days) == len(set(days)) > 1
        assert same(store, lake, "blocks", "events")
        publisher.close()
        # The position outlives the commits in which it was.
        store.commit([entry("blocks", 5, blocks(5))], {"s": store.head + 1})
        publish(publisher)
        publisher.close()
        assert same(store, lake, "blocks", "events")


@pytest.mark.parametrize(("days", "stays"), [(1.9, True), (30.0, True), (3.0, False)])
def test_what_another_collector_has_just_written_stays_though_the_clock_jumps(
    tmp_path: Path, days: float, *, stays: bool
) -> None:
    jump, lake = 0.0, tmp_path / "lake"
    system = calendar_at(lambda: time.time() + jump)
    with Store(tmp_path / "log.duckdb", system=system) as store:
        compactor = partial(Compactor, every=0.0)
        publisher = Publisher(store, Lake.at(lake), system, parts=LakeParts(compactor=compactor))
        fill(store, 1)
        publish(publisher)
        written = next(lake.rglob("blocks/**/*.parquet")).with_name("other-1-5-x.parquet")
        written.write_bytes(b"not committed yet")
        if stays:
            jump = days * DAY_SECONDS
            fill(store, 2)
        else:  # of a time when the clock was right
            os.utime(written, (time.time() - days * DAY_SECONDS,) * 2)
        publish(publisher)
        publisher.compact()
        publisher.close()
        assert written.exists() is stays


def test_the_lag_has_rows_that_come_while_one_batch_follows_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, lags = time.time(), list[float]()
    monkeypatch.setattr(BatchReader, "limit", 10)
    real = Catalog.commit
    with Store(tmp_path / "log.duckdb", system=system_at(lambda: now)) as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"), system_at(lambda: now))

        def come() -> None:
            store.commit([entry("blocks", 10, blocks(10, store.head))], {"s": store.head + 1})

        def commit(self: Catalog, files: Any, before: int, position: int) -> None:
            nonlocal now
            real(self, files, before, position)
            now += 20.0
            lags.append(publisher.figures.lag_seconds(now))
            for _ in range(2 if store.head < 60 else 0):
                come()

        monkeypatch.setattr(Catalog, "commit", commit)
        come()
        come()
        publisher.look()
        assert publisher.figures.position == store.head == 60
        publisher.close()
    # Each batch takes as long as two more need to come.
    assert lags == [20.0, 40.0, 40.0, 60.0, 60.0, 80.0]


def test_the_lag_has_rows_that_come_while_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, lags = time.time(), list[float]()
    with Store(tmp_path / "log.duckdb", system=system_at(lambda: now)) as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"), system_at(lambda: now))

        def merge(*_: object) -> int:
            nonlocal now
            store.commit([entry("blocks", 10, blocks(10, 10))], {"s": 2})
            publisher.watch()  # by the main thread
            now += 20.0
            lags.append(publisher.figures.lag_seconds(now))
            monkeypatch.undo()
            return 0

        monkeypatch.setattr(Compactor, "merge", merge)
        store.commit([entry("blocks", 10, blocks(10))], {"s": 1})
        publisher.look()
        publisher.close()
    assert lags == [20.0]


@pytest.mark.parametrize("fails", [False, True])
def test_rows_that_come_while_files_are_merged_are_published_before_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    monkeypatch.setattr("barograph_collector.lake.publisher.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("barograph_collector.lake.compaction.MIN_FILES", 2)
    real, lake = FileWriter.merge, tmp_path / "lake"
    refused = threading.Event()

    def refuse(*_: object) -> None:
        refused.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    with Store(tmp_path / "log.duckdb") as store:
        publisher = Publisher(store, Lake.at(lake), seconds=0.0)

        def come() -> None:
            store.commit([entry("blocks", 10, blocks(10, store.head))], {"s": store.head + 1})

        def merge(*arguments: Any) -> Any:
            come()
            wait_until(lambda: refused.is_set() or publisher.figures.position == store.head, "they are published")
            return real(*arguments)

        for _ in range(2):
            come()
            publish(publisher)
        with monkeypatch.context() as merging:
            merging.setattr(FileWriter, "merge", merge)
            if fails:
                merging.setattr(Catalog, "commit", refuse)
                with pytest.raises(OSError, match="No space left"):
                    publisher.compact()
                publisher.close()
            else:
                assert publisher.compact()
                assert publisher.figures.position == store.head == 30
        publish(publisher)
        while publisher.compact():
            pass
        assert same(store, lake, "blocks")
        publisher.close()


PUBLISH_FOREVER = """
import sys
from pathlib import Path
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import Publisher
from barograph_collector.storage.store import Store
sys.path.insert(0, sys.argv[2])
from helpers.lakes import any_rows
import numpy as np
state = Path(sys.argv[1])
with Store(state / "log.duckdb") as store:
    publisher = Publisher(store, Lake.at(state / "lake"), seconds=0.0)
    print("begun", flush=True)
    for number in range(10**6):
        rows = [any_rows(table, 200, np.random.default_rng(), 2) for table in ("blocks", "runs")]
        store.commit(rows, {"s": store.head + 1})
        publisher.publish()
        publisher.compact()
        print("published", flush=True)
"""


@pytest.mark.process
def test_each_row_is_in_the_lake_once_after_kills_at_any_instant(tmp_path: Path) -> None:
    chance = random.Random(3)
    command = [sys.executable, "-c", PUBLISH_FOREVER, str(tmp_path), str(Path(__file__).parents[1])]
    kill_publishers(command, 5, chance)
    with Store(tmp_path / "log.duckdb") as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        publish(publisher)
        publisher.close()
        assert store.head >= 5 * 400
        assert same(store, tmp_path / "lake", "blocks", "runs")


def test_a_store_that_vanishes_is_one_line_and_the_rows_follow_once_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1.0
    with Store(tmp_path / "log.duckdb") as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"), system_at(lambda: now), seconds=0.0)
        fill(store, 1)
        publisher.look()
        (tmp_path / "lake").rename(tmp_path / "away")
        (tmp_path / "lake").mkdir()  # an empty mount point
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                fill(store, 2)
                now += RETRY_SECONDS
                publisher.look()
        assert publisher.figures.failures == 3
        assert publisher.figures.lag_seconds(now) == 2 * RETRY_SECONDS
        errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) <= 2
        assert "is its file system mounted?" in errors[-1]
        assert not list((tmp_path / "lake").rglob("*.parquet"))
        shutil.rmtree(tmp_path / "lake")
        (tmp_path / "away").rename(tmp_path / "lake")
        now += RETRY_SECONDS
        with caplog.at_level(logging.INFO):
            publisher.look()
        assert caplog.records[-1].message == "the lake takes rows again"
        assert publisher.figures.lag_seconds(now) == 0.0
        publisher.close()
        assert same(store, tmp_path / "lake")


def test_a_full_store_is_an_error_and_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Store(tmp_path / "log.duckdb") as store:
        fill(store, 1)
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        with monkeypatch.context() as patched:
            patched.setattr(type(SYSTEM.disk), "sync", full)
            with pytest.raises(OSError, match="No space left"):
                publisher.publish()
        publisher.close()
        publish(publisher)
        publisher.close()
        assert same(store, tmp_path / "lake")


def test_a_full_store_is_one_line_however_many_rows_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1.0

    def full(self: FileWriter, table: str, rows: object, day: str, first: int, last: int) -> None:
        raise duckdb.IOException(f'IO Error: Could not write file "{table}/x-{first}-{last}": No space left on device')

    monkeypatch.setattr(FileWriter, "write", full)
    with Store(tmp_path / "log.duckdb") as store, caplog.at_level(logging.INFO):
        publisher = Publisher(store, Lake.at(tmp_path / "lake"), system_at(lambda: now), seconds=0.0)
        for _ in range(3):
            fill(store, 2)
            now += RETRY_SECONDS
            publisher.look()
        publisher.close()
    assert publisher.figures.failures == 3
    (line,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith("Could not write file")
    assert line.endswith(": No space left on device; the log goes on, and keeps the rows until the lake takes them")
    assert sum("has rows up to 0 of log" in record.message for record in caplog.records) == 1


def test_a_lake_of_another_version_or_another_program_is_refused(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Store(tmp_path / "log.duckdb") as store:
        fill(store, 1)
        publisher = Publisher(store, Lake.at(lake))
        publish(publisher)
        publisher.close()
        with duckdb.connect(lake / CATALOG_FILE) as catalog:
            catalog.execute("UPDATE ducklake_metadata SET value = '99.0' WHERE key = 'version'")
        with pytest.raises(LakeError, match=r"is 99\.0, .*; another version of DuckLake has written it$"):
            publisher.publish()
        with duckdb.connect(lake / CATALOG_FILE) as catalog:
            catalog.execute("UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'")
            catalog.execute("UPDATE ducklake_column SET column_name = 'later' WHERE column_name = 'onset_at'")
        with pytest.raises(LakeError, match="table 'scores' with a column 'later'"):
            publisher.publish()
        (lake / CATALOG_FILE).write_text("no catalog")
        with pytest.raises(LakeError, match="cannot open the lake"):
            publisher.publish()


def test_collectors_take_turns_at_a_catalog_in_a_file(tmp_path: Path) -> None:
    with Store(tmp_path / "a.duckdb") as one, Store(tmp_path / "b.duckdb") as other:
        publishers = [Publisher(store, Lake.at(tmp_path / "lake")) for store in (one, other)]
        for number in range(2):
            for store, publisher in zip((one, other), publishers, strict=True):
                fill(store, number)
                publish(publisher)
        for publisher in publishers:
            publisher.close()
        with opened(tmp_path / "lake") as connection:
            found = connection.execute('SELECT collector, "offset" FROM lake.runs ORDER BY ALL').fetchall()
        assert found == sorted(
            (store.database.name, row[0]) for store in (one, other) for row in logged(store, "runs")[0]
        )


def test_a_commit_waits_for_that_of_another_process_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LOCK_SECONDS", 1)
    passed = [0.0]
    clock = Clock()
    clock.monotonic = lambda: passed[0]  # type: ignore[method-assign]
    clock.sleep = lambda seconds: passed.append(passed.pop() + seconds)  # type: ignore[method-assign]
    first, second = (FileLease(tmp_path, DISK, clock) for _ in range(2))
    first.hold()
    with pytest.raises(LakeError, match="has been written by another process for 1 s"):
        second.hold()
    assert passed[0] >= 1.0
    clock.sleep = lambda seconds: first.release()  # type: ignore[method-assign]
    passed[0] = 0.0
    second.hold()
    second.release()


@pytest.mark.parametrize("stays", [False, True])
def test_a_commit_waits_for_a_reader_of_the_catalog_and_not_for_ever(tmp_path: Path, stays: bool) -> None:
    passed = [0.0]
    with Store(tmp_path / "log.duckdb") as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        fill(store, 1)
        publish(publisher)
        publisher.close()
        fill(store, 2)
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
        publisher = Publisher(store, Lake.at(tmp_path / "lake"), SYSTEM._replace(clock=clock))
        if stays:
            text = rf"has been read by \S+ \(PID {reader.pid}\) for 10 s, expected that it is detached"
            with pytest.raises(LakeError, match=text):
                publisher.publish()
            assert passed[0] >= 10.0
            reader.communicate("\n")
        publish(publisher)
        publisher.close()
        assert same(store, tmp_path / "lake")


def test_a_log_restored_from_an_older_copy_is_not_published(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        fill(store, 1)
    shutil.copytree(tmp_path, tmp_path / "backup")
    with Store(tmp_path / "log.duckdb") as store:
        fill(store, 2)
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        publish(publisher)
        publisher.close()
    with Store(tmp_path / "backup/log.duckdb") as store, pytest.raises(LakeError, match="restored from an older copy"):
        Publisher(store, Lake.at(tmp_path / "lake")).publish()


def test_of_two_collectors_with_copies_of_one_log_the_one_that_came_second_never_publishes(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    (tmp_path / "state").mkdir()
    with Store(tmp_path / "state/log.duckdb") as store:
        fill(store, 1)
        publisher = Publisher(store, lake)
        publish(publisher)
        publisher.close()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    with Store(tmp_path / "state/log.duckdb") as store, Store(tmp_path / "copy/log.duckdb") as copy:
        first, second = Publisher(store, lake), Publisher(copy, lake)
        assert not first.publish()
        assert not second.publish()
        fill(copy, 2)
        fill(store, 3, commits=2)
        publish(first)
        refused = set()
        for attempt in range(3):
            # Now, as the collector tries it again, and after a restart.
            with pytest.raises(LakeError, match="that another process has written, expected no other") as refusal:
                second.publish()
            refused.add(str(refusal.value))
            second.close()
            second = Publisher(copy, lake) if attempt else second
        assert len(refused) == 1, "one line in the log of the collector"
        second.close()
        first.close()
        again = Publisher(store, lake)
        fill(store, 4)
        publish(again)
        again.close()
        assert same(store, tmp_path / "lake")


def test_the_position_is_found_where_another_program_has_expired_the_commits(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Store(tmp_path / "log.duckdb") as store:
        fill(store, 1)
        publisher = Publisher(store, Lake.at(lake))
        publish(publisher)
        publisher.close()
        with loaded("ducklake") as other:
            other.execute(f"ATTACH 'ducklake:{lake / CATALOG_FILE}' AS lake")
            other.execute("CREATE TABLE lake.notes (text VARCHAR)")
            other.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
        fill(store, 2)
        publish(publisher)
        publisher.close()
        assert same(store, lake)


def test_retention_drops_no_day_that_the_lake_lacks(tmp_path: Path) -> None:
    day = 20_000
    with Store(tmp_path / "log.duckdb", system=calendar_at(lambda: day * DAY_SECONDS)) as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        for day in range(20_000, 20_004):
            fill(store, day)
        assert store.apply_retention(Retention(days=1)) == 0
        publish(publisher)
        publisher.close()
        kept = logged(store, "blocks")
        assert store.apply_retention(Retention(days=1)) == 2
        assert alike(rows_of(tmp_path / "lake", "blocks"), kept)


def test_a_producer_that_invents_clusters_makes_a_limited_number_of_files(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        jobs = [f"x{number}/1.0.0" for number in range(MAX_CLUSTERS + 50)]
        store.commit([entry("blocks", len(jobs), {**blocks(len(jobs)), "job": jobs})], {"s": 1})
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        publish(publisher)
        publisher.close()
        assert publisher.figures.files == MAX_CLUSTERS + 2  # of others, and of marks
        assert same(store, tmp_path / "lake", "blocks")
        with opened(tmp_path / "lake") as lake:
            query = f"SELECT count(*) FROM lake.blocks WHERE cluster = '{OTHERS}'"
            assert lake.execute(query).fetchone() == (50,)


def test_a_batch_with_much_text_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph_collector.lake.batches.BATCH_BYTES", 10_000)
    with Store(tmp_path / "log.duckdb") as store:
        texts = [str(number) * 1000 for number in range(64)]
        events = {"source": "s", "kind": "k", "rows": 0, "at": 0.0}
        for number, text in enumerate(texts):
            store.commit([entry("events", 1, {**events, "detail": text})], {"s": number})
        publisher = Publisher(store, Lake.at(tmp_path / "lake"))
        assert publisher.publish()
        assert publisher.figures.position < 16
        publish(publisher)
        publisher.close()
        assert same(store, tmp_path / "lake", "events")


def test_packages_that_do_not_belong_together_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb, "__version__", "1.5.6")
    with pytest.raises(
        LakeError, match=r"DuckDB is of version 1\.5\.6, the package duckdb-extension-ducklake is for 1\.5\.5"
    ):
        extension("ducklake")
    monkeypatch.setattr(extensions.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LakeError, match=r"expected barograph\[lake\] installed"):
        extension("ducklake")


def test_acknowledgements_do_not_wait_for_a_lake_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, entered = SYSTEM.threads.event(), SYSTEM.threads.event()
    commit = Catalog.commit

    def hang(self: Catalog, *arguments: Any) -> None:
        entered.set()
        hanging.wait(DEADLINE_SECONDS)
        commit(self, *arguments)

    monkeypatch.setattr(Catalog, "commit", hang)
    path = tmp_path / "log.duckdb"
    with (
        collector_on(
            path, publisher_of=lambda store: Publisher(store, Lake.at(tmp_path / "lake"), seconds=0.0)
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
        wait_until(lambda: collector.publisher and collector.publisher.figures.position >= 1990, "rows in the lake")
    (rows,) = rows_of(tmp_path / "lake", "blocks")
    assert len({row[0] for row in rows}) == len(rows) == 1990


def test_a_lake_that_does_not_answer_is_one_line_and_a_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1.0
    with Store(tmp_path / "log.duckdb") as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake"), system_at(lambda: now))
        seen: list[tuple[float, int]] = []

        def slow() -> bool:
            nonlocal now
            for seconds in (SILENT_SECONDS, 1.0, 1.0):
                now += seconds
                publisher.watch()
                said = [text for text in caplog.messages if "has not answered for 120 s; the log goes on" in text]
                seen.append((publisher.figures.lag_seconds(now), len(said)))
            return False

        monkeypatch.setattr(publisher, "expire", slow)
        publisher.look()
        assert seen == [(0.0, 0), (121.0, 1), (122.0, 1)]
        publisher.watch()
        assert publisher.figures.lag_seconds(now) == 0.0
        now += 100.0
        publisher.look()
        assert seen[3:] == [(0.0, 1), (121.0, 2), (122.0, 2)]
        publisher.close()
