"""A lake whose catalog is in PostgreSQL: each row once, one commit at a time, and clear lines where it refuses."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.settings.sources import ConfigError, Configuration
from barograph_collector.erase.erasure import erase
from barograph_collector.lake import catalog
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.place import Lake
from barograph_collector.settings import CollectorSettings
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.store import LOG, Store
from helpers.lakes import SEAL_FOREVER, alike, any_rows, job_row, kill_sealers, logged, opened, rows_of, seal_all
from helpers.postgres import PASSWORD, Postgres

pytestmark = pytest.mark.integration
TABLES = ("blocks", "runs")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A log with some rows, and a lake in `tmp_path/lake`."""
    with Store(tmp_path / LOG, lake=Lake.at(tmp_path / "lake").data) as made:
        fill(made)
        yield made


def fill(store: Store) -> None:
    numbers = np.random.default_rng(store.head)
    store.commit([any_rows(table, 100, numbers, 2) for table in TABLES], {"s": store.head + 1})


def test_two_logs_have_one_lake(tmp_path: Path, server: Postgres, store: Store) -> None:
    lake = Lake.at(tmp_path / "lake", server.database("shared"))
    with Store(tmp_path / "b.duckdb", lake=lake.data) as other:
        for _ in range(3):
            for one in (store, other):
                fill(one)
                seal_all(one, lake)
        with opened(tmp_path / "lake", lake.url) as reader:
            for one in (store, other):
                mine = f"collector = '{one.database.name}'"
                found = reader.execute(f"SELECT log_offset FROM lake.blocks WHERE {mine} ORDER BY 1").fetchall()
                assert found == [row[:1] for row in logged(one, "blocks")[0]]


def test_a_commit_waits_for_that_of_another_process_for_a_limited_time(
    tmp_path: Path, server: Postgres, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "LOCK_SECONDS", 1)
    lake = Lake.at(tmp_path / "lake", server.database("held"))
    seal_all(store, lake)
    fill(store)
    other = Catalog(lake, tmp_path / "scratch")
    with other._committing(), pytest.raises(LakeError, match="canceling statement due to lock timeout"):
        seal_all(store, lake)
    other.close()
    seal_all(store, lake)
    assert alike(rows_of(tmp_path / "lake", *TABLES, catalog=lake.url), logged(store, *TABLES))


def test_refusals_are_one_line_without_the_password(tmp_path: Path, server: Postgres, store: Store) -> None:
    for url, reason in (
        (server.url("postgres", "wrong"), 'password authentication failed for user "barograph"'),
        (server.url("nowhere"), 'database "nowhere" does not exist'),
        (server.url("postgres").replace(str(server.port), "1"), "Connection refused"),
    ):
        with pytest.raises(LakeError, match=f"^cannot use the catalog of the lake .*{reason}") as refusal:
            seal_all(store, Lake.at(tmp_path / "lake", url))
        assert "\n" not in str(refusal.value)
        assert not re.search("wrong@|" + PASSWORD, str(refusal.value))


def test_a_server_that_answers_in_another_language_is_refused(
    tmp_path: Path, server: Postgres, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which languages a machine has is not known, so C is foreign here.
    monkeypatch.setattr(catalog, "_ENGLISH", re.compile("en"))
    with pytest.raises(LakeError, match=r"has lc_messages 'C', expected C: .*ALTER ROLE"):
        seal_all(store, Lake.at(tmp_path / "lake", server.database("language")))


def test_settings_of_the_lake_are_checked() -> None:
    def settings(**given: str) -> CollectorSettings:
        given = {"state": "/nowhere", **given}
        return Configuration(CollectorSettings, given=given, environment={}, file=None, complete=True).settings

    with pytest.raises(ConfigError, match="catalog: expected lake with it"):
        settings(catalog="postgresql://baro@db/lake")
    with pytest.raises(ConfigError, match="lake_keep: expected lake with it"):
        settings(lake_keep="30")
    assert settings(lake_keep="30", lake="/lake").lake_keep == "30"
    assert settings(catalog="postgresql://baro@db/lake", lake="/lake").catalog == "postgresql://baro@db/lake"
    for wrong in ("mysql://baro:hidden@db/lake", "postgresql://baro:hidden@db", "lake"):
        with pytest.raises(ConfigError, match=r"expected postgresql://USER@HOST/DATABASE") as refusal:
            settings(catalog=wrong, lake="/lake")
        assert "hidden" not in str(refusal.value)


def test_each_row_is_in_the_lake_once_after_kills_of_the_collector_and_of_the_server(
    tmp_path: Path, server: Postgres
) -> None:
    chance, lake = random.Random(5), Lake.at(tmp_path / "lake", server.database("kills"))
    arguments = (str(tmp_path), str(Path(__file__).parents[1]), str(tmp_path / "lake"), lake.url)
    kill_sealers([sys.executable, "-c", SEAL_FOREVER, *arguments], 4, chance, server.stop, server.start)
    with Store(tmp_path / LOG, lake=lake.data, period_seconds=0.001) as store:
        seal_all(store, lake)
        assert store.head >= 4 * 400
        assert alike(rows_of(tmp_path / "lake", *TABLES, catalog=lake.url), logged(store, *TABLES))


def test_a_user_is_erased_from_a_lake_whose_catalog_is_in_postgresql(tmp_path: Path, server: Postgres) -> None:
    lake, state = Lake.at(tmp_path / "lake", server.database("erased")), tmp_path / "state"
    state.mkdir()
    with Store(state / LOG, lake=lake.data) as store:
        store.commit([job_row("c0/1.0.0", "mallory", 1), job_row("c0/2.0.0", "olga", 2)], {"": 1})
        store.commit([any_rows("blocks", 200, np.random.default_rng(1), 1)], {"": 2})
        seal_all(store, lake)
        blocks, jobs = logged(store, "blocks", "jobs")
    done = erase("mallory", state, lake)
    assert (done.jobs, done.rows["jobs"]) == (1, 1)
    left = [[row for row in rows if row[1] != "c0/1.0.0"] for rows in (blocks, jobs)]
    assert len(left[0]) < len(blocks)
    assert alike(rows_of(tmp_path / "lake", "blocks", "jobs", catalog=lake.url), left)
    with opened(tmp_path / "lake", lake.url) as reader:
        query = "SELECT count(*) FROM __ducklake_metadata_lake.ducklake_{} WHERE 'mallory' IN (min_value, max_value)"
        for table in ("table_column_stats", "file_column_stats"):
            assert reader.execute(query.format(table)).fetchone() == (0,)
