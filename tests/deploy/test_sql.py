"""`barograph sql`: table, CSV and JSON output, and refusals."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barograph.cli import main
from barograph_collector.server import Collector
from helpers.history import write_history
from helpers.log import collector_on

QUERY = "SELECT job, runtime_seconds, [1, 2] AS pair, 'nan'::DOUBLE AS none FROM runs ORDER BY job LIMIT 1"


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with collector_on(tmp_path / "log.duckdb") as running:
        write_history(running.endpoint)
        yield running


def test_an_answer_is_a_table_csv_or_json(collector: Collector, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    where = f"--collector={collector.endpoint}"
    assert main(["sql", QUERY, where]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [word.strip() for word in lines[1].strip("┃").split("┃")] == ["job", "runtime_seconds", "pair", "none"]
    assert [word.strip() for word in lines[3].strip("│").split("│")] == ["lab/0.0.0", "325", "[1, 2]", "nan"]
    assert main(["sql", QUERY, where, "--csv"]) == 0
    header, row = csv.reader(io.StringIO(capsysbinary.readouterr().out.decode()))
    assert (header, row) == (["job", "runtime_seconds", "pair", "none"], ["lab/0.0.0", "325", "[1,2]", "nan"])
    assert main(["sql", QUERY, where, "--json"]) == 0
    (found,) = json.loads(capsysbinary.readouterr().out)
    assert found == {"job": "lab/0.0.0", "runtime_seconds": 325.0, "pair": [1, 2], "none": None}


def test_truncation_is_reported_on_standard_error(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "SELECT * FROM blocks", f"--collector={collector.endpoint}", "--limit=2", "--csv"]) == 0
    out, error = capsys.readouterr()
    assert out.count("\n") == 3
    assert error == "barograph sql: the first 2 rows; --limit takes more\n"


def test_control_characters_in_values_are_escaped(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "SELECT chr(27) || '[31m[bold]' AS x", f"--collector={collector.endpoint}"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31m[bold]" in out


def test_a_refused_query_is_status_65(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "DROP TABLE jobs", f"--collector={collector.endpoint}"]) == 65
    assert capsys.readouterr().err == "barograph sql: query is DROP, expected one SELECT\n"
