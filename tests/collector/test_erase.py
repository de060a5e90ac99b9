"""Erasure of one user: nothing of the jobs is left in any file, and all others' rows are as they were."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from barograph.cli import main
from barograph_agent.protocol.tables import TABLES
from barograph_collector.erase.erasure import ErasureError, erase
from barograph_collector.lake.place import Lake
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.layout import LOG_COLUMNS
from barograph_collector.storage.store import LOG, Store
from helpers.clocks import calendar_at
from helpers.lakes import alike, any_rows, entry, job_row, logged, rows_of, seal_all

USER = "zzyva-mallory"
HERS = ["c0/3.0.0", "c0/4.0.0", "c1/3.0.0", "c1/4.0.0", "c9/1.0.0"]
WRITTEN = ("blocks", "scores", "runs", "events", "work_edits", "bands", "works")
Rows = dict[str, list[tuple[Any, ...]]]


def described(table: str, **columns: list[str]) -> Any:
    """Rows of a table with some texts."""
    rows = len(next(iter(columns.values())))
    values: dict[str, object] = {
        name: ["x"] * rows if kind.is_text else np.ones(rows, kind.dtype)
        for name, kind in TABLES[table].columns.items()
    }
    return entry(table, rows, values | columns)


RANDOM = ("blocks", "scores", "bands", "works", "runs")
FEW = ("blocks", "works")


def write(state: Path, lake: Path | None, days: int = 2, tables: Sequence[str] = RANDOM) -> None:
    """A log of some days with jobs of several users, and a lake that has it; all days but the last are archived.

    tables: that have rows; only with all of them events and edits have some too.
    """
    day = 20_000
    with Store(state / LOG, system=calendar_at(lambda: day * DAY_SECONDS), lake=lake and DataPath(lake)) as store:
        for number in range(days):
            numbers = np.random.default_rng(number)
            entries = [any_rows(table, 60, numbers, 2) for table in tables]
            for cluster in range(2):
                for name in range(9):
                    job = f"c{cluster}/{name}.0.0"
                    entries.append(job_row(job, USER if job in HERS else f"user-{name}", name))
            entries.append(job_row("c9/1.0.0", USER, 9))
            if tables is RANDOM:
                source = ["c0/3.0.0/node1", "modeler", "modeler", "c0/30.0.0/node1"]
                detail = ["dropped", "job c1/4.0.0: too many classes", '{"job":"c1/3.0.0"}', "of c1/44.0.0, c0/3.0"]
                entries.append(described("events", source=source, detail=detail))
                entries.append(described("work_edits", editor=[USER, "olga"], target=["app-1", "app-2"]))
            marks = {f"{job}/node1": number + 1 for job in (*HERS, "c0/1.0.0")}
            store.commit(entries, {**marks, "modeler": number + 1, "": number + 1})
            day += 1
        if lake is not None:
            seal_all(store, Lake.at(lake), retention=Retention(hot_days=0))


def all_rows(state: Path, lake: Path | None = None) -> Rows:
    """What can be read of the log and its lake, by table."""
    with Store(state / LOG, lake=lake and DataPath(lake)) as store:
        found: Rows = {}
        for table in ("jobs", *WRITTEN):
            rows: list[tuple[Any, ...]] = []
            after = 0
            while (page := store.read(table, after, 1000)).rows:
                assert not page.note
                rows += zip(*(page.columns[name] for name in LOG_COLUMNS[table]), strict=True)
                after = page.next_offset
            found[table] = rows
        with store.cursor() as log:
            found["streams"] = log.execute("SELECT DISTINCT stream FROM streams ORDER BY 1").fetchall()
        return found


def kept(before: Rows) -> Rows:
    """What is to be left of these rows."""
    left: Rows = {}
    for table, rows in before.items():
        if table == "streams":
            ended = {row[1] for row in before["runs"]}
            left[table] = [(name,) for (name,) in rows if name.rpartition("/")[0] not in set(HERS) & ended]
        elif table == "events":
            source, detail = (list(LOG_COLUMNS[table]).index(name) for name in ("source", "detail"))
            left[table] = [row for row in rows if row[source] == "c0/30.0.0/node1" and row[detail].startswith("of")]
        elif table == "work_edits":
            left[table] = [tuple("erased" if value == USER else value for value in row) for row in rows]
        elif "job" in LOG_COLUMNS[table]:
            job = list(LOG_COLUMNS[table]).index("job")
            left[table] = [row for row in rows if row[job] not in HERS]
        else:
            left[table] = rows
    return left


def traces(*directories: Path) -> list[str]:
    """Files that have the name of the user in them, and what of it Parquet files have, which are compressed."""
    found = [
        str(path)
        for directory in directories
        for path in directory.rglob("*")
        if path.is_file() and USER.encode() in path.read_bytes()
    ]
    with duckdb.connect() as connection:
        for path in (path for directory in directories for path in directory.rglob("*.parquet")):
            names = connection.execute(f"SELECT name FROM parquet_schema('{path}')").fetchall()
            if ("job",) in names:
                query = f"SELECT count(*) FROM '{path}' WHERE list_contains(?, job)"
                if connection.execute(query, [HERS]).fetchone() != (0,):
                    found.append(str(path))
    return found


def prepared(root: Path, tables: Sequence[str]) -> Path:
    """A directory with a log and its lake, which stay where they are, and a copy of both."""
    (root / "state").mkdir()
    write(root / "state", root / "lake", tables=tables)
    shutil.copytree(root / "state", root / "before/state")
    shutil.copytree(root / "lake", root / "before/lake")
    return root


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("written"), RANDOM)


@pytest.fixture(scope="module")
def few_written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("few"), FEW)


def as_written(root: Path) -> tuple[Path, Path]:
    """State directory and lake as they were written."""
    for name in ("state", "lake"):
        shutil.rmtree(root / name)
        shutil.copytree(root / "before" / name, root / name)
    return root / "state", root / "lake"


@pytest.fixture
def lake_and_log(written: Path) -> tuple[Path, Path]:
    return as_written(written)


@pytest.fixture
def few_tables(few_written: Path) -> tuple[Path, Path]:
    """The same of a log in which few tables have rows: each file of the lake takes its time."""
    return as_written(few_written)


@pytest.fixture(params=[False, True], ids=["log", "lake"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path | None]:
    """State directory and lake of a log, or of one without a lake."""
    if request.param:
        state, lake = request.getfixturevalue("lake_and_log")
        return state, lake
    (tmp_path / "state").mkdir()
    write(tmp_path / "state", None)
    return tmp_path / "state", None


def test_nothing_is_left_of_a_user_and_everything_of_the_others(places: tuple[Path, Path | None]) -> None:
    state, lake = places
    directories = [state, *([lake] if lake else [])]
    before = all_rows(state, lake)
    (state / "modeler.snapshot").write_text(f"{USER}")
    (state / f"{LOG}.wal.unreadable").write_text(f"{USER}")
    assert traces(*directories)
    counted = erase(USER, state, lake and Lake.at(lake), dry=True)
    assert all_rows(state, lake) == before
    erased = erase(USER, state, lake and Lake.at(lake))
    assert erased == counted
    assert erased.jobs == len(HERS)
    assert erased.rows["jobs"] == 2 * len(HERS)
    assert (erased.lake_rows > 100) == (lake is not None)
    assert not traces(*directories)
    after = all_rows(state, lake)
    expected = kept(before)
    for table, rows in expected.items():
        assert alike([after[table]], [rows]), table
    if lake is not None:
        tables = ("jobs", *WRITTEN)
        assert alike(rows_of(lake, *tables), [expected[table] for table in tables])
    assert erase(USER, state, lake and Lake.at(lake)) == (0, {}, 0, 0, [], [])


def test_the_log_and_the_lake_go_on_after_an_erasure(places: tuple[Path, Path | None]) -> None:
    state, lake = places
    erase(USER, state, lake and Lake.at(lake))
    with Store(state / LOG, lake=lake and DataPath(lake)) as store:
        head = store.head
        assert store.commit([job_row("c0/1.0.0", "user-1", 1)], {"modeler": 9}) == head + 1
        assert store.marks(["c0/1.0.0/node1", "modeler"]) == {"c0/1.0.0/node1": 2, "modeler": 9}
        if lake is not None:
            seal_all(store, Lake.at(lake))
            assert alike(rows_of(lake, "jobs"), logged(store, "jobs"))


@pytest.mark.parametrize(
    "at",
    [
        "LakeFiles.put",
        "Database.replace_files",
        "Catalog.make_anew",
        "DataPath.unlink",
        "Store.erase",
        "copy_tables",
        "Disk.rename",
    ],
)
def test_an_erasure_that_is_killed_is_done_by_the_next_one(
    few_tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    class Killed(BaseException):
        pass

    state, lake = few_tables
    before = all_rows(state, lake)
    modules = {
        "LakeFiles": "lake.files", "Catalog": "lake.catalog", "Database": "storage.database", "Store": "storage.store",
        "copy_tables": "storage.store", "DataPath": "storage.days.data_path",
    }  # fmt: skip
    module = modules.get(at.partition(".")[0])
    place = f"barograph_collector.{module}.{at}" if module else f"barograph_agent.system.disk.{at}"

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(place, die)
        with pytest.raises(Killed):
            erase(USER, state, lake and Lake.at(lake))
    left = {table: len(rows) for table, rows in all_rows(state, lake).items() if table != "streams"}
    assert all(len(kept(before)[table]) <= rows <= len(before[table]) for table, rows in left.items())
    erase(USER, state, lake and Lake.at(lake))
    assert not traces(state, lake)
    after = all_rows(state, lake)
    for table, rows in kept(before).items():
        assert alike([after[table]], [rows]), table


def test_the_command_says_what_there_is_and_erases_with_yes(
    few_tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def barograph(*words: object) -> subprocess.CompletedProcess[str]:
        status = main(["erase", *map(str, words)])
        return subprocess.CompletedProcess(words, status, *capsys.readouterr())

    state, lake = few_tables
    refused = barograph(USER, "--state", state)
    assert (refused.returncode, refused.stderr) == (
        65,
        f"barograph erase: {state / LOG} has the lake {lake}, expected --lake with it, and --catalog if it has one\n",
    )
    assert barograph(USER, "--state", state, "--lake", lake.with_name("other")).stderr == refused.stderr
    misspelt = barograph(USER, "--state", state, "--lake", "s3://Lake")
    assert (misspelt.returncode, misspelt.stderr) == (
        65,
        "barograph erase: argument --lake: 's3://Lake' is no place in an object store, expected s3://BUCKET/PREFIX with"
        " a bucket of 3 to 63 lower-case letters, digits, dots and hyphens\n",
    )
    asked = barograph(USER, "--state", state, "--lake", lake)
    assert asked.stdout.startswith(f"would erase 5 jobs of {USER}\n  10 rows of jobs\n")
    assert asked.stderr == "barograph erase: --yes erases it\n"
    done = barograph(USER, "--state", state, "--lake", lake, "--yes")
    assert (done.returncode, done.stdout) == (0, asked.stdout.replace("would erase", "erased"))
    assert not traces(state, lake)
    unknown = barograph("nobody", "--state", state, "--lake", lake, "--yes")
    text = "barograph erase: no job of 'nobody' is in the log or the lake, expected a user of the table jobs\n"
    assert (unknown.returncode, unknown.stdout, unknown.stderr) == (65, "", text)


def test_a_log_that_is_in_use_is_not_touched(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    write(state, None, days=1)
    opening = f"import duckdb, sys; c = duckdb.connect({json.dumps(str(state / LOG))})"
    hold = f"{opening}; print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(ErasureError, match="another process has it open"):
            erase(USER, state)
        holder.communicate()
    with pytest.raises(ErasureError, match="not found, expected the log of a collector"):
        erase(USER, tmp_path)
