"""A lake in an object store: a real one, which is away, full, or refuses; nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from barograph_collector.client.log_reader import LogReader
from barograph_collector.erase.erasure import erase
from barograph_collector.lake.catalog import CATALOG_FILE
from barograph_collector.lake.keep import Keep
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import RETRY_SECONDS, Sealer
from barograph_collector.storage.rows import Entry
from barograph_collector.storage.store import LOG, Store
from helpers.archives import FIRST, WRITTEN, History, asked, followed, paged, selected
from helpers.clocks import system_at
from helpers.lakes import (
    SEAL_FOREVER,
    alike,
    any_rows,
    attached_rows,
    job_row,
    kill_sealers,
    loaded,
    logged,
    seal_all,
)
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until
from helpers.object_store import KEY, SECRET, Swift
from helpers.postgres import Postgres
from helpers.up import Up

pytestmark = pytest.mark.process
Rows = list[list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def swift() -> Iterator[Swift]:
    """A server for all tests of this module."""
    with Swift() as server:
        yield server


def rows_of(swift: Swift, lake: Lake, *tables: str) -> Rows:
    """The rows of these tables, as any DuckDB reads the lake."""
    with loaded("ducklake", "httpfs") as connection:
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', REGION 'us-east-1',"
            f" ENDPOINT '127.0.0.1:{swift.port}', URL_STYLE 'path', USE_SSL false)"
        )
        connection.execute(f"ATTACH 'ducklake:{lake.directory / CATALOG_FILE}' AS lake (READ_ONLY)")
        return attached_rows(connection, *tables)


def test_rows_are_sealed_archived_read_and_leave(tmp_path: Path, swift: Swift, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = swift.lake("life", tmp_path)
    history = History(tmp_path, hot_days=1, lake=lake)
    history.write(days=2)
    # More than one part of an upload.
    numbers = np.random.default_rng(1)
    history.store.commit([blocks_of("a/1.0.0", 100_000, numbers)], {"s": history.store.head + 1})
    history.day += 1
    history.store.commit([any_rows("silences", 1, numbers)], {"s": history.store.head + 1})
    history.day += 1
    expected = logged(history.store, *WRITTEN)
    history.seal()
    assert history.archived == [FIRST, FIRST + 1]
    assert max(info.size for info in sizes(swift, "life")) > 5 * 2**20
    history.sealer.close()
    assert alike(rows_of(swift, lake, *WRITTEN), expected)
    store = history.store
    assert alike([paged(store, table, 50_000) for table in ("scores", "silences")], expected[1:])
    assert alike([selected(store, "scores")], expected[1:2])
    assert len(followed(store, 200_000)[0]) == len(expected[0])
    assert asked(store, "SELECT count(*) FROM blocks").error == ""
    for query in ("SELECT * FROM duckdb_secrets()", f"SELECT * FROM 's3://life/{'x'}.parquet'"):
        assert "expected" in asked(store, query).error
    monkeypatch.setattr("barograph_collector.lake.catalog.KEEP_SECONDS", -60)
    before = set(swift.names("life"))
    history.sealer.keep = Keep.read("silences=1")
    assert history.sealer.expire()
    left = set(swift.names("life"))
    names = [file.name(store.database.name).path for file in store.database.sealed_files()]
    assert left < before
    assert {name for name in left if "/main/" in name} == {f"some/lake/data/{name}" for name in names}
    history.close()


def blocks_of(job: str, rows: int, numbers: np.random.Generator) -> Entry:
    """Rows of `blocks` of one job, which cannot be compressed."""
    entry = any_rows("blocks", rows, numbers, 1)
    return entry._replace(columns={**entry.columns, "job": job})


def sizes(swift: Swift, bucket: str) -> list[fs.FileInfo]:
    return [
        info
        for info in swift.objects.get_file_info(fs.FileSelector(bucket, recursive=True))
        if info.type is fs.FileType.File
    ]


def test_nothing_of_a_user_is_left_in_the_store_after_an_erasure(tmp_path: Path, swift: Swift) -> None:
    lake = swift.lake("erased", tmp_path)
    with Store(tmp_path / LOG, lake=lake.data) as store:
        store.commit([job_row("c0/1.0.0", "mallory", 1), job_row("c0/2.0.0", "olga", 2)], {"": 1})
        store.commit([any_rows("blocks", 200, np.random.default_rng(1), 1)], {"": 2})
        seal_all(store, lake)
        kept, jobs = logged(store, "blocks", "jobs")
    before = swift.names("erased")
    erase("mallory", tmp_path, lake)
    left = [[row for row in rows if row[1] != "c0/1.0.0"] for rows in (kept, jobs)]
    assert len(left[0]) < len(kept)
    assert alike(rows_of(swift, lake, "blocks", "jobs"), left)
    after = swift.names("erased")
    assert not {name for name in set(before) & set(after) if "/main/" in name}
    for name in after:
        with swift.objects.open_input_file(f"erased/{name}") as file:
            content = file.read()
        assert b"mallory" not in content
        assert b"c0/1.0.0" not in content


def test_what_the_store_refuses_is_one_line_and_the_rows_follow(
    tmp_path: Path, swift: Swift, caplog: pytest.LogCaptureFixture
) -> None:
    now, keys = 1.0, tmp_path / "keys"
    swift.objects.create_dir("refused")
    write_keys(keys)
    lake = Lake.find("s3://refused/lake", tmp_path, "", swift.endpoint, keys)
    end = "; the log goes on, and keeps the rows until the lake takes them"
    denied = (
        f"{swift.endpoint} refuses the credentials for s3://refused/lake,"
        f" expected a key that may list, read, write and delete there{end}"
    )
    away = f"{swift.endpoint} cannot be reached for s3://refused/lake: "
    system = system_at(lambda: now)
    with Store(tmp_path / "log.duckdb", lake=lake.data, system=system, period_seconds=1.0) as store:
        sealer = Sealer(store, lake, system)

        def look() -> str:
            """What is said of new rows, or that they are in the lake."""
            nonlocal now
            rows = [any_rows(table, 100, np.random.default_rng(store.head)) for table in WRITTEN]
            store.commit(rows, {"s": store.head + 1})
            now += RETRY_SECONDS
            caplog.clear()
            sealer.poll()
            assert (sealer.figures.last_offset == store.head) == (sealer._complaint == "")
            return caplog.messages[-1] if sealer._complaint else "in the lake"

        for _ in range(2):  # before there is a lake, and when it is there
            sealer.close()
            write_keys(keys, secret="wrong")
            assert look() == denied
            keys.chmod(0o644)
            assert look() == f"{keys} has mode 644, expected one that only its owner may read: chmod 600 {keys}{end}"
            write_keys(keys, key="lake:nobody")
            assert look() == denied
            swift.kill()
            write_keys(keys)
            assert look().startswith(away)
            swift.start()
            assert look() == "in the lake"
        swift.kill()  # while it is open
        assert look().startswith(away)
        swift.start("100%")
        full = (
            f"{swift.endpoint} takes nothing for s3://refused/lake (HTTP 503): is it full, busy, or over a quota?{end}"
        )
        assert look() == full
        swift.kill()
        swift.start()
        assert look() == "in the lake"
        sealer.close()
        assert alike(rows_of(swift, lake, *WRITTEN), logged(store, *WRITTEN))
        for name in swift.names("refused"):
            swift.objects.delete_file(f"refused/{name}")
        assert look().startswith("the lake s3://refused/lake has no object barograph-lake, expected it")
        swift.objects.delete_dir("refused")
        assert look() == f"{swift.endpoint} has no bucket 'refused', expected one: it is not made here{end}"
        sealer.close()


def test_rows_are_acknowledged_while_the_store_is_away_and_days_of_the_database_are_answered(
    tmp_path: Path, swift: Swift
) -> None:
    history = History(tmp_path, hot_days=1, lake=swift.lake("away", tmp_path))
    history.write(days=3)
    history.seal()
    assert history.archived == [FIRST]
    history.close()
    lake = Lake.find("s3://away/some/lake", tmp_path, environment=swift.environment)
    seals = {"sealer_of": lambda store: Sealer(store, lake), "lake": lake.data, "period_seconds": 1.0}
    with (
        collector_on(tmp_path / "log.duckdb", **seals) as collector,
        Producer(collector.endpoint) as producer,
        LogReader(collector.endpoint, DEADLINE_SECONDS) as reader,
    ):
        sealer = collector.sealer
        assert sealer is not None
        assert reader.query("SELECT count(*) FROM silences", seconds=DEADLINE_SECONDS).note == ""
        swift.kill()
        producer.hello()
        for seq in range(1, 6):
            producer.append(seq, "blocks", 10, blocks(10, 10 * seq))
        producer.receive_ack(5)
        answer = reader.query("SELECT count(*) FROM scores", seconds=DEADLINE_SECONDS)
        assert "day 2024-10-04 could not be read: " in answer.note
        wait_until(lambda: sealer.figures.failures > 0, "the store is away")
        swift.start()
        wait_until(lambda: sealer.figures.last_offset == collector.counters.last_offset, "the rows are in the lake")
        assert reader.query("SELECT count(*) FROM scores", seconds=DEADLINE_SECONDS).note == ""


def test_each_row_is_in_the_lake_once_after_kills_of_the_collector_and_of_the_store(
    tmp_path: Path, swift: Swift
) -> None:
    chance = random.Random(7)
    lake = swift.lake("kills", tmp_path)
    arguments = (str(tmp_path), str(Path(__file__).parents[1]), "s3://kills/some/lake", "")
    environment = {**os.environ, **swift.environment}
    kill_sealers([sys.executable, "-c", SEAL_FOREVER, *arguments], 4, chance, swift.kill, swift.start, environment)
    with Store(tmp_path / LOG, lake=lake.data, period_seconds=0.001) as store:
        seal_all(store, lake)
        assert store.head >= 4 * 400
        assert alike(rows_of(swift, lake, "blocks", "runs"), logged(store, "blocks", "runs"))


@pytest.mark.integration
def test_a_catalog_in_postgresql_lists_objects(tmp_path: Path, swift: Swift) -> None:
    with Postgres() as server:
        lake = swift.lake("listed", tmp_path, server.database("listed"))
        history = History(tmp_path, hot_days=0, lake=lake)
        history.write(days=3)
        expected = logged(history.store, *WRITTEN)
        history.seal()
        assert history.archived == [FIRST, FIRST + 1]
        assert alike([paged(history.store, table, 1000) for table in WRITTEN], expected)
        catalog = history.sealer._catalog
        assert catalog is not None
        assert {f"some/lake/data/{name.path}" for name in catalog.files()} <= set(swift.names("listed"))
        history.close()


def test_up_has_a_lake_in_an_object_store(tmp_path: Path, swift: Swift) -> None:
    swift.objects.create_dir("served")
    write_keys(tmp_path / "keys")
    (tmp_path / "config.toml").write_text("[collector]\nlake_period = 2\n")
    options = [f"--lake-endpoint={swift.endpoint}", f"--lake-credentials={tmp_path / 'keys'}"]
    with Up(tmp_path, "--lake=s3://served/lake", f"--config={tmp_path / 'config.toml'}", *options) as service:
        service.wait_for("the lake s3://served/lake has rows up to 0")
        command = [sys.executable, "-m", "barograph", "run", "--", "true"]
        subprocess.run(command, env=service.environment, check=True, timeout=120)
        wait_until(lambda: any("/main/runs/" in name for name in swift.names("served")), "the run is in the lake")


def write_keys(path: Path, key: str = KEY, secret: str = SECRET) -> None:
    """A file of credentials as other programs have it."""
    path.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    path.chmod(0o600)
