"""`barograph sql`: table, CSV and JSON output, files of any number of rows, and refusals."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from barograph.cli import main
from barograph.commands.output_file import write
from barograph.commands.sql import pages
from barograph.views.log import arrow_of
from barograph.views.refusal import NoResult
from barograph_collector.client.log_reader import LogReader
from barograph_collector.server import Collector
from helpers.history import CLASSES, REPEATS, SCALES, nx, runtime, write_history
from helpers.log import DEADLINE_SECONDS, collector_on
from helpers.mpi import REPOSITORY

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


RUNS = len(SCALES) * REPEATS
EXTRA_P = (REPOSITORY / "docs/engineer/sql.md").read_text().partition("```sql\n")[2].partition("```")[0]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_table_is_written_as_the_log_has_it(
    collector: Collector, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"blocks.{form}"
    assert main(["sql", "FROM blocks", f"--collector={collector.endpoint}", f"--output={path}"]) == 0
    assert capsys.readouterr().out == f"{path}: {20 * (RUNS + 2)} rows\n"
    rows = pyarrow.parquet.read_table(path) if form == "parquet" else pyarrow.csv.read_csv(path)
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
        (stored,) = reader.read_all("blocks")
    for name, values in stored.columns.items():
        assert rows[name].to_pylist() == list(values), name


def test_rows_with_an_offset_are_all_written_however_many_have_one(collector: Collector) -> None:
    query = "SELECT r.log_offset, twice FROM runs AS r, range(3) AS t(twice) -- each run three times"
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
        every = arrow_of(reader.query(query)).to_pylist()
        for page_rows in (7, 1000):
            found = [row for page in pages(reader, query, 10.0, page_rows) for row in page.to_pylist()]
            assert sorted(map(str, found)) == sorted(map(str, every))
        # All rows of an offset fill a page: whether there are more of it cannot be known.
        with pytest.raises(NoResult, match="more than 3 rows have log_offset"):
            list(pages(reader, query, 10.0, 3))


def test_rows_without_an_offset_are_written_too(collector: Collector) -> None:
    query = "SELECT r.log_offset, j.job FROM jobs AS j LEFT JOIN (FROM runs LIMIT 3) AS r USING (job)"
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
        (page,) = pages(reader, query, 10.0)
        assert page.num_rows == reader.query(query).rows > 3


def test_measurements_for_extra_p_are_a_query(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "hpcg.jsonl"
    assert main(["sql", EXTRA_P, f"--collector={collector.endpoint}", f"--output={path}"]) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["metric"] for line in lines} == {"runtime"}
    assert all(line["params"] == {"p": line["params"]["p"], "nx": nx(line["params"]["p"])} for line in lines)
    assert {line["callpath"] for line in lines} == {
        "run",
        "run->ComputeDotProduct+0x1f (7)",
        "run->std::ptr::operator.+0x2 (9)",
    }
    for share, of in ((1.0, ["run"]), (0.25, sorted({line["callpath"] for line in lines} - {"run"}))):
        for callpath in of:
            found = [(line["params"]["p"], line["value"]) for line in lines if line["callpath"] == callpath]
            expected = [(ranks, runtime(ranks, repeat) * share) for ranks in SCALES for repeat in range(REPEATS)]
            assert np.array(sorted(found)) == pytest.approx(np.array(sorted(expected)))
    assert len(lines) == RUNS * (1 + len(CLASSES))


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (["DROP TABLE jobs"], 65, "barograph sql: query is DROP, expected one SELECT\n"),
        (["FROM nothing"], 65, "Catalog Error: Table with name nothing does not exist"),
        (["FROM range(200000)"], 65, "the result has more than 100000 rows, expected fewer or a column `log_offset`"),
        (["FROM jobs", "--output=x.xls"], 2, "argument --output: 'x.xls', expected a name that ends with .parquet or "),
        (
            ["FROM jobs", "--output=/nonexistent/x.csv"],
            73,
            "cannot write /nonexistent/x.csv: No such file or directory",
        ),
    ],
)
def test_a_failed_query_leaves_the_old_file(
    collector: Collector, tmp_path: Path, words: list[str], status: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.csv"
    path.write_text("before")
    options = [f"--collector={collector.endpoint}", f"--output={path}", *words]
    if status == 2:
        with pytest.raises(SystemExit, match="2"):
            main(["sql", *options])
    else:
        assert main(["sql", *options]) == status
    assert error in capsys.readouterr().err
    assert path.read_text() == "before"


def test_an_interrupted_command_leaves_the_old_file_and_no_partial_one(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    path.write_text("before")

    def interrupted() -> Iterator[pa.Table]:
        yield pa.table({"a": [1]})
        assert len(list(tmp_path.iterdir())) == 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, interrupted())
    assert [one.read_text() for one in tmp_path.iterdir()] == ["before"]
