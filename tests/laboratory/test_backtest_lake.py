"""`barograph backtest --lake`: whoever computes the series reads them from the files of the lake."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.cli import main
from barograph_agent.protocol.tables import TABLES
from barograph_collector.lake.place import Lake
from barograph_collector.storage.days.retention import DAY_SECONDS
from barograph_collector.storage.rows import Entry
from barograph_collector.storage.store import LOG, Store
from barograph_lab.history import LakePlace
from barograph_lab.studies.alerts.pairs import MeasuredRun
from barograph_lab.studies.alerts.remaining import simulated_runs
from barograph_lab.studies.bands.tasks import prequential
from barograph_lab.studies.series import Series
from helpers import job_log
from helpers.clocks import calendar_at
from helpers.dask import Cluster
from helpers.executor import Inline
from helpers.lakes import entry, seal_all
from helpers.log import blocks

FIRST, DAYS, OF_RUN = 20_000, 3, 30


def one_row(table: str, **values: object) -> Entry:
    """A row, empty or 0 where nothing else is given."""
    return entry(table, 1, {name: "" if kind.is_text else 0 for name, kind in TABLES[table].columns.items()} | values)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], list[float]]]:
    """A lake of days with a run of two workloads each, the last of which goes on; and the values of the others."""
    root, day, random = tmp_path_factory.mktemp("lake"), FIRST, np.random.default_rng(1)
    values: dict[tuple[str, str], list[float]] = {}
    made = Lake.at(root / "lake")
    with Store(root / LOG, system=calendar_at(lambda: day * DAY_SECONDS + 3600.0), lake=made.data) as store:
        for day in range(FIRST, FIRST + DAYS + 1):
            entries = []
            for number, workload in enumerate(("a", "b")):
                job = f"hpc/{10 * day + number}.0.0"
                at = day * DAY_SECONDS + 10.0
                entries.append(one_row("jobs", job=job, cluster="hpc", workload=workload, started_at=at))
                entries.append(one_row("runs", job=job, ended_at=at + 100.0, runtime_seconds=100.0))
                for class_id in (1, 2):
                    seconds = random.lognormal(class_id, 0.1, OF_RUN)
                    columns = blocks(OF_RUN) | {"job": job, "class_id": class_id, "sum_seconds": seconds}
                    entries.append(entry("blocks", OF_RUN, columns))
                    if day < FIRST + DAYS:
                        values.setdefault((workload, str(class_id)), []).extend(seconds.tolist())
            store.commit(entries, {"s": day})
        seal_all(store, made)
    return root / "lake", values


def expected(values: dict[tuple[str, str], list[float]]) -> list[Series]:
    return [
        Series({"workload": workload, "class": one}, None, np.array(found)) for (workload, one), found in values.items()
    ]


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["backtest", "bands", *options, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_series_of_a_lake_are_those_of_its_ended_days(
    lake: tuple[Path, dict[tuple[str, str], list[float]]], capsys: pytest.CaptureFixture[str]
) -> None:
    place, values = lake
    found = printed(capsys, "--lake", str(place), "--mode", "prequential")
    rows = list(prequential(expected(values)))
    assert [row["by"] for row in found["series"]] == [row.by for row in rows]
    assert [row["coverage"] for row in found["series"]] == [row.coverage for row in rows]
    since = printed(capsys, "--lake", str(place), "--mode", "prequential", "--since", "2024-10-05", "--values", "40")
    assert {row["scored"] + row["fitted"] for row in since["series"]} == {40}


class Remote(Inline):
    """Workers elsewhere: what is sent and what comes back are bytes."""

    tasks = 0

    def start(self) -> tuple[Remote, Callable[[], None]]:
        return self, lambda: None

    def submit(self, work: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        self.tasks += 1
        function, given = pickle.loads(pickle.dumps((work, args)))
        return super().submit(lambda: pickle.loads(pickle.dumps(function(*given))))


def test_workers_read_the_lake_themselves(
    lake: tuple[Path, dict[tuple[str, str], list[float]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, values = lake
    remote = Remote()
    monkeypatch.setattr("barograph_lab.backtest.bands.workers_of", lambda options: remote.start)
    monkeypatch.setattr(LakePlace, "reader", read_elsewhere(LakePlace.reader, remote))
    main(["backtest", "bands", "--lake", str(place), "--json"])
    assert remote.tasks == 2
    assert {tuple(row["by"].values()) for row in json.loads(capsys.readouterr().out)["series"]} == values.keys()


def read_elsewhere(real: Callable[[LakePlace], Any], remote: Remote) -> Callable[[LakePlace], Any]:
    def reader(place: LakePlace) -> Any:
        assert remote.tasks, "not in this process"
        return real(place)

    return reader


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["x.csv"], "expected FILE.csv with --value and --by, or --lake"),
        (["x.csv", "--lake", "LAKE"], "--lake with x.csv, expected one of them"),
        (["--lake", "LAKE", "--by", "job"], "--lake with --by, expected one of them"),
        (["--lake", "LAKE", "--until", "2020-01-01"], "has no blocks of ended runs on days that have ended"),
        (["--lake", "NONE"], "has no barograph-lake, expected it"),
    ],
)
def test_what_is_no_lake_or_more_than_one_source_is_refused(
    lake: tuple[Path, object], tmp_path: Path, options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"LAKE": str(lake[0]), "NONE": str(tmp_path)}
    assert main(["backtest", "bands", *(places.get(one, one) for one in options)]) == 65
    assert text in capsys.readouterr().err


def test_runs_of_a_lake_are_scored_by_scale_and_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries, number = [], 0
    for size in (100, 200):
        for ranks in (1, 2, 4, 8, 16, 32, 64):
            for status in (0, 0, 1):
                number += 1
                job, params = f"hpc/{number}.0.0", f'{{"n":"{size}","input":"a, b"}}'
                row = {"job": job, "cluster": "hpc", "app": "solver", "params": params, "ranks": ranks}
                entries.append(one_row("jobs", **row, started_at=1e9))
                took = 9.0 * status + size / ranks + number / 100
                entries.append(
                    one_row("runs", job=job, ended_at=1e9 + number, runtime_seconds=took, exit_status=status)
                )
    made = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=made.data) as store:
        store.commit(entries, {"s": 1})
        seal_all(store, made)
    lake = ["--lake", str(tmp_path / "lake"), "--models", "amdahl", "--json"]
    assert main(["backtest", "scaling", *lake]) == 0
    found = capsys.readouterr()
    assert "28 runs" in found.err
    by = [row["by"] for row in json.loads(found.out)["workloads"]]
    assert {one["params"] for one in by} == {f'{{"n":"{size}","input":"a, b"}}' for size in (100, 200)}
    assert main(["backtest", "scaling", *lake, "--size", "n"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["workloads"]
    assert row["by"] == {"cluster": "hpc", "app": "solver", "params": '{"input":"a, b"}'}
    for options, text in (
        ([*lake, "--size", "m"], "has no run with a number 'm' among its parameters that ended well in that time"),
        ([*lake, "--since", "2030-01-01"], "has no run that ended well in that time, expected some"),
        ([*lake, "--time", "s"], "--lake with --time, expected one of them"),
        (["runs.csv", "--time", "s"], "expected FILE.csv with --time, --ranks and --by, or --lake"),
    ):
        assert main(["backtest", "scaling", *options]) == 65
        assert text in capsys.readouterr().err


@pytest.mark.process
def test_a_dask_cluster_reads_the_lake(
    lake: tuple[Path, object], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barograph_modeler.workers.CONNECT_SECONDS", 120)
    alone = printed(capsys, "--lake", str(lake[0]))
    with Cluster(1, tmp_path) as cluster:
        assert printed(capsys, "--lake", str(lake[0]), "--dask", cluster.address) == alone


def published(root: Path, entries: list[Entry], day: int = FIRST) -> str:
    """A lake with these rows, and a block of the next day."""
    made = Lake.at(root / "lake")
    with Store(root / LOG, system=calendar_at(lambda: day * DAY_SECONDS + 3600.0), lake=made.data) as store:
        for number in (0, 1):
            day += number
            store.commit(entries if number == 0 else [entry("blocks", 1, blocks(1))], {"s": number + 1})
        seal_all(store, made)
    return str(root / "lake")


def test_jobs_of_a_lake_have_the_limits_of_a_log_that_has_as_little_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = job_log.repetitive(150, 6)
    entries = []
    for row in rows:
        row[job_log.SUBMITTED] += FIRST * DAY_SECONDS
        row[job_log.WAITED], row[job_log.REQUESTED] = 0, -1
        row[12], row[14] = -1, 1  # no group, and one queue
        began, runtime, of_user = row[job_log.SUBMITTED], row[job_log.RUNTIME], f"u{row[job_log.USER]:02}"
        # Every third job has two steps with a pause between them.
        steps = [(began, runtime)] if row[0] % 3 else [(began, runtime / 4), (began + runtime / 2, runtime / 2)]
        for number, (at, seconds) in enumerate(steps):
            job, app = f"hpc/{row[0]}.0.{number}", f"exe{row[job_log.EXECUTABLE]}"
            entries.append(
                one_row("jobs", job=job, cluster="hpc", app=app, user=of_user, ranks=row[7], started_at=float(at))
            )
            entries.append(one_row("runs", job=job, ended_at=float(at + seconds), runtime_seconds=float(seconds)))
    others = {"hpc/900.0.0": {}, "canary/1.0.0": {"cluster": "canary"}, "hpc/901.0.0": {"started_at": 0.0}}
    for job, of_job in others.items():
        known = {"cluster": "hpc", "started_at": FIRST * DAY_SECONDS} | of_job
        entries.append(one_row("jobs", job=job, **known))
    entries.append(one_row("runs", job="hpc/901.0.0", ended_at=FIRST * DAY_SECONDS, runtime_seconds=math.nan))
    lake = published(tmp_path, entries)
    log = job_log.write(tmp_path / "log.swf", rows)
    assert main(["backtest", "limits", str(log), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["backtest", "limits", "--lake", lake, "--json"]) == 0
    done = capsys.readouterr()
    found = json.loads(done.out)
    assert found["scores"] == expected["scores"]
    assert found["jobs"] == expected["jobs"] == 150
    assert "1 jobs without an end of " in done.err
    assert "1 jobs without runtime of " in done.err
    for options, text in (
        (["--lake", lake, "--until", "2020-01-01"], "has 0 jobs of that time that have ended, expected at least 2"),
        (["--lake", lake, str(log)], "expected a LOG or --lake, one of them"),
        ([], "expected a LOG or --lake, one of them"),
    ):
        assert main(["backtest", "limits", *options]) == 65
        assert text in capsys.readouterr().err


def samples(path: Path, runs: list[MeasuredRun]) -> str:
    """A CSV file of runs."""
    lines = [f"{one.workload},{one.name},{value!r}" for one in runs for value in one.values.tolist()]
    path.write_text("\n".join(["workload,run,seconds", *lines]) + "\n")
    return str(path)


@pytest.mark.parametrize("remote", [False, True])
def test_remaining_times_of_a_lake_are_those_of_its_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, remote: bool
) -> None:
    entries, runs, number, at = [], [], 0, FIRST * DAY_SECONDS + 100.0
    for seed in (1, 2):
        for one in simulated_runs(seed, 0, 3):
            number += 1
            job, values = f"hpc/{number}.0.0", one.values[:400] / 10
            runs.append(MeasuredRun(f"w{seed}", job, values, one.disturbed))
            known = {"job": job, "cluster": "hpc", "workload": f"w{seed}", "started_at": at + number}
            entries += [one_row("jobs", **known), one_row("runs", job=job, ended_at=at + 500, exit_status=0)]
            entries.append(
                entry("blocks", 400, blocks(400) | {"job": job, "class_id": 1 + number % 2, "sum_seconds": values})
            )
            if one.disturbed:
                entries.append(one_row("scores", job=job, state="slow", alarmed_at=at + 50, time=at + 60))
    for job, ended in (("hpc/98.0.0", 1), ("hpc/99.0.0", None)):
        # One that failed, and one that has not ended.
        entries.append(one_row("jobs", job=job, cluster="hpc", workload="w1", started_at=at))
        entries.append(entry("blocks", 400, blocks(400) | {"job": job}))
        entries += [one_row("runs", job=job, ended_at=at + 9, exit_status=ended)] if ended else []
    lake = published(tmp_path, entries)
    disturbed = ",".join(f"{one.workload}={one.name}" for one in runs if one.disturbed)
    words = ["--value", "seconds", "--by", "workload", "--run", "run", "--disturbed", disturbed]
    assert main(["backtest", "remaining", samples(tmp_path / "x.csv", runs), *words, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert expected["summary"]
    elsewhere = Remote()
    monkeypatch.setattr(
        "barograph_lab.backtest.remaining.workers_of", lambda options: elsewhere.start if remote else None
    )
    assert main(["backtest", "remaining", "--lake", lake, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    assert elsewhere.tasks == 2 * remote
    # 400 intervals as 200 times: ten windows.
    assert main(["backtest", "remaining", "--lake", lake, "--json", "--values", "399"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["errors"]) == len(expected["errors"])
    assert found != expected
    for options, text in (
        (["--newest", "2"], "no run has another of its workload with as many values, expected at least one"),
        (["--values", "100"], "no run has another of its workload with as many values, expected at least one"),
        (["runs.csv"], "--lake with runs.csv, expected one of them: its workloads are groups of like work"),
        (["--disturbed", "a"], "--lake with --disturbed, expected one of them"),
    ):
        assert main(["backtest", "remaining", "--lake", lake, *options]) == 65
        assert text in capsys.readouterr().err
