"""A lake whose catalog is in PostgreSQL: each row once, one committer at a time, and clear lines where it refuses."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pytest

from barograph_agent.settings.sources import ConfigError, Configuration
from barograph_collector.erase.erasure import erase
from barograph_collector.lake import lease
from barograph_collector.lake.compaction import Compactor
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import LakeParts, Publisher
from barograph_collector.settings import CollectorSettings
from barograph_collector.storage.days.data_path import DirectoryPath
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.store import LOG, Store
from helpers.clocks import calendar_at
from helpers.lakes import alike, any_rows, job_row, kill_publishers, logged, opened, rows_of
from helpers.postgres import PASSWORD, Postgres

pytestmark = pytest.mark.integration
TABLES = ("blocks", "runs")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


def fill(store: Store) -> None:
    numbers = np.random.default_rng(store.head)
    store.commit([any_rows(table, 100, numbers, 2) for table in TABLES], {"s": store.head + 1})


def publish(publisher: Publisher) -> None:
    while publisher.publish():
        pass


def test_two_logs_commit_to_one_lake_in_turns(
    tmp_path: Path, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barograph_collector.lake.compaction.MIN_FILES", 3)
    url, lake = server.database("shared"), tmp_path / "lake"
    with Store(tmp_path / "a.duckdb") as one, Store(tmp_path / "b.duckdb") as other:
        publishers = [Publisher(store, Lake.at(lake, url)) for store in (one, other)]
        for _ in range(6):
            for store, publisher in zip((one, other), publishers, strict=True):
                fill(store)
                publish(publisher)
                publisher.compact()
        for publisher in publishers:
            assert publisher.figures.merged
            publisher.close()
        with opened(lake, url) as reader:
            for store in (one, other):
                mine = f"collector = '{store.database.name}'"
                found = reader.execute(f'SELECT "offset" FROM lake.blocks WHERE {mine} ORDER BY 1').fetchall()
                assert found == [row[:1] for row in logged(store, "blocks")[0]]


def test_a_commit_waits_for_that_of_another_process_for_a_limited_time(
    tmp_path: Path, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LOCK_SECONDS", 1)
    url = server.database("held")
    with Store(tmp_path / "log.duckdb") as store, opened_lock(url) as other:
        fill(store)
        publisher = Publisher(store, Lake.at(tmp_path / "lake", url))
        with pytest.raises(LakeError, match="canceling statement due to lock timeout"):
            publisher.publish()
        other.execute("ROLLBACK")
        publisher.close()
        publish(publisher)
        publisher.close()
        assert alike(rows_of(tmp_path / "lake", *TABLES, catalog=url), logged(store, *TABLES))


def opened_lock(url: str) -> duckdb.DuckDBPyConnection:
    """A connection that has the lease."""
    connection = duckdb.connect()
    held = lease.ServerLease(url)
    held.prepare(connection)
    held.hold()
    connection.execute("BEGIN")
    held.begin(connection)
    return connection


def test_refusals_are_one_line_without_the_password(tmp_path: Path, server: Postgres) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        fill(store)
        for url, reason in (
            (server.url("postgres", "wrong"), 'password authentication failed for user "barograph"'),
            (server.url("nowhere"), 'database "nowhere" does not exist'),
            (server.url("postgres").replace(str(server.port), "1"), "Connection refused"),
        ):
            with pytest.raises(LakeError, match=f"^cannot open the lake .*{reason}$") as refusal:
                Publisher(store, Lake.at(tmp_path / "lake", url)).publish()
            assert "\n" not in str(refusal.value)
            assert not re.search("wrong@|" + PASSWORD, str(refusal.value))


def test_a_server_that_answers_in_another_language_is_refused(
    tmp_path: Path, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which languages a machine has is not known, so C is foreign here.
    monkeypatch.setattr(lease, "_ENGLISH", re.compile("en"))
    with Store(tmp_path / "log.duckdb") as store:
        fill(store)
        with pytest.raises(LakeError, match=r"has lc_messages 'C', expected C: .*ALTER ROLE"):
            Publisher(store, Lake.at(tmp_path / "lake", server.database("language"))).publish()


@pytest.mark.parametrize(("ahead", "words"), [(7200.0, "7200 s ahead of"), (-7200.0, "7200 s behind")])
def test_a_clock_that_differs_from_the_servers_is_said_once_and_forgets_no_state_sooner(
    tmp_path: Path, server: Postgres, caplog: pytest.LogCaptureFixture, ahead: float, words: str
) -> None:
    url, lake = server.database(f"clock{int(ahead > 0)}"), tmp_path / "lake"
    system = calendar_at(lambda: time.time() + ahead)
    with Store(tmp_path / "log.duckdb", system=system) as store:
        compactor = partial(Compactor, every=0.0)
        publisher = Publisher(store, Lake.at(lake, url), system, parts=LakeParts(compactor=compactor))
        for _ in range(3):
            fill(store)
            publish(publisher)
        publisher.compact()
        publisher.close()
    with opened(lake, url) as reader:
        assert reader.execute("SELECT count(*) >= 4 FROM ducklake_snapshots('lake')").fetchone() == (True,)
    text = f"the clock of this host is {words} that of the catalog's server, expected that they agree"
    assert [line for line in caplog.messages if "clock" in line] == [text]


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


PUBLISH_FOREVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import Publisher
from barograph_collector.storage.store import LOG, Store
from helpers.lakes import any_rows
import numpy as np
state = Path(sys.argv[1])
with Store(state / "log.duckdb") as store:
    publisher = Publisher(store, Lake.at(state / "lake", sys.argv[3]), seconds=0.0)
    print("begun", flush=True)
    for number in range(10**6):
        store.commit([any_rows(t, 200, np.random.default_rng(), 2) for t in ("blocks", "runs")], {"s": store.head + 1})
        publisher.look()
        print("published", flush=True)
"""


def test_each_row_is_in_the_lake_once_after_kills_of_the_collector_and_of_the_server(
    tmp_path: Path, server: Postgres
) -> None:
    chance, url = random.Random(5), server.database("kills")
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", PUBLISH_FOREVER, str(tmp_path), tests, url]
    kill_publishers(command, 4, chance, server.stop, server.start)
    with Store(tmp_path / "log.duckdb") as store:
        publisher = Publisher(store, Lake.at(tmp_path / "lake", url))
        publish(publisher)
        publisher.close()
        assert store.head >= 4 * 400
        assert alike(rows_of(tmp_path / "lake", *TABLES, catalog=url), logged(store, *TABLES))


def test_a_user_is_erased_from_a_lake_whose_catalog_is_in_postgresql(tmp_path: Path, server: Postgres) -> None:
    url, lake, state = server.database("erased"), tmp_path / "lake", tmp_path / "state"
    state.mkdir()
    with Store(state / LOG, lake=DirectoryPath(lake)) as store:
        publisher = Publisher(store, Lake.at(lake, url), seconds=0.0)
        store.commit([job_row("c0/1.0.0", "mallory", 1), job_row("c0/2.0.0", "olga", 2)], {"": 1})
        store.commit([any_rows("blocks", 200, np.random.default_rng(1), 1)], {"": 2})
        publish(publisher)
        publisher.close()
        blocks, jobs = logged(store, "blocks", "jobs")
    done = erase("mallory", state, Lake.at(lake, url))
    assert (done.jobs, done.rows["jobs"]) == (1, 1)
    left = [[row for row in rows if row[1] != "c0/1.0.0"] for rows in (blocks, jobs)]
    assert len(left[0]) < len(blocks)
    assert alike(rows_of(lake, "blocks", "jobs", catalog=url), left)
    with opened(lake, url) as reader:
        query = "SELECT count(*) FROM __ducklake_metadata_lake.ducklake_{} WHERE 'mallory' IN (min_value, max_value)"
        for table in ("table_column_stats", "file_column_stats"):
            assert reader.execute(query.format(table)).fetchone() == (0,)
