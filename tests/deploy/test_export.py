"""`barograph export`: content of the file, and atomic replacement."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

from barograph.cli import main
from barograph.commands import export
from barograph.options import since_argument
from barograph_collector.client.log_reader import LogReader
from barograph_collector.server import Collector
from helpers.history import APP, CLASSES, REPEATS, SCALES, nx, runtime, write_history
from helpers.log import DEADLINE_SECONDS, collector_on

RUNS = len(SCALES) * REPEATS
CLASS_NAMES = ["run->ComputeDotProduct+0x1f (7)", "run->std::ptr::operator.+0x2 (9)"]


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with collector_on(tmp_path / "log.duckdb") as running:
        write_history(running.endpoint)
        yield running


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_table_is_exported_as_the_log_has_it(
    collector: Collector, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"blocks.{form}"
    arguments = ["blocks", f"--collector={collector.endpoint}", f"--output={path}", f"--format={form}"]
    assert main(["export", *arguments]) == 0
    assert capsys.readouterr().out == f"{path}: {20 * (RUNS + 2)} rows of blocks\n"
    rows = pyarrow.parquet.read_table(path) if form == "parquet" else pyarrow.csv.read_csv(path)
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
        (stored,) = reader.read_all("blocks")
    for name, values in stored.columns.items():
        assert rows[name].to_pylist() == list(values), name


def test_since_and_app_choose_rows(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    words = [f"--collector={collector.endpoint}", f"--output={path}"]
    assert main(["export", "runs", *words, "--since=2026-01-04T00:00:00+00:00", f"--app={APP}"]) == 0
    jobs = pyarrow.parquet.read_table(path)["job"].to_pylist()
    assert jobs == [f"lab/{number}.0.0" for number in range(3, RUNS + 1)]


def test_successful_runs_are_exported_for_extra_p(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "hpcg.jsonl"
    words = [f"--collector={collector.endpoint}", f"--output={path}"]
    assert main(["export", "--format=extrap", f"--app={APP}", *words]) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for callpath, part in {"run": 1.0, **dict.fromkeys(CLASS_NAMES, 0.25)}.items():
        found = [line for line in lines if line["callpath"] == callpath]
        expected = [(ranks, runtime(ranks, repeat) * part) for ranks in SCALES for repeat in range(REPEATS)]
        assert sorted(line["params"]["p"] for line in found) == [ranks for ranks, _ in expected]
        assert sorted(line["value"] for line in found) == pytest.approx(sorted(value for _, value in expected))
    assert len(lines) == RUNS * (1 + len(CLASSES))
    assert all(line["params"] == {"p": line["params"]["p"], "nx": nx(line["params"]["p"])} for line in lines)
    assert {line["metric"] for line in lines} == {"runtime"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["sites", "--since=7d"], 65, "table 'sites' has no time, expected no --since"),
        (["sites", f"--app={APP}"], 65, "table 'sites' has no job, expected no --app or one of jobs, works, "),
        (["runs", "--app=nobody"], 65, "app 'nobody' has no jobs in the log, expected one that `barograph status`"),
        (["--format=extrap", "--app=nobody"], 65, "app 'nobody' has no run that ended well, expected at least one"),
        (["runs", "--output=/nonexistent/x"], 73, "cannot write /nonexistent/x: No such file or directory"),
    ],
)
def test_a_failed_export_is_one_line_and_leaves_the_old_file(
    collector: Collector, tmp_path: Path, words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    assert main(["export", f"--collector={collector.endpoint}", f"--output={path}", *words]) == status
    error = capsys.readouterr().err
    assert error.startswith(f"barograph export: {said}")
    assert error.count("\n") == 1
    assert path.read_text() == "before"


def test_an_interrupted_export_leaves_the_old_file_and_no_partial_one(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "out"
    directory.mkdir()
    (directory / "runs.parquet").write_text("before")

    def broken(*_: object) -> int:
        (part,) = (path for path in directory.iterdir() if path.name.startswith("."))
        assert part.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(export.Selection, "pages", lambda self: (broken() for _ in range(1)))
    with pytest.raises(KeyboardInterrupt):
        main(["export", "runs", f"--collector={collector.endpoint}", f"--output={directory / 'runs.parquet'}"])
    assert [path.read_text() for path in directory.iterdir()] == ["before"]


def test_since_takes_dates_and_ages() -> None:
    assert since_argument("2026-01-01T00:00:00+00:00") == 1_767_225_600.0
    assert since_argument("2026-01-02") - since_argument("2026-01-01") == 86400.0
    assert since_argument("7d") == pytest.approx(time.time() - 7 * 86400, abs=60)
    with pytest.raises(argparse.ArgumentTypeError, match="'soon', expected a date, date and time, or an age as 7d"):
        since_argument("soon")
