"""The queries of docs/operator/lake.md, as they are there: each program gives the same answer as the log."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from barograph_collector.lake.place import Lake
from barograph_collector.storage.days.extensions import extension
from barograph_collector.storage.store import Store
from helpers.clocks import calendar_at
from helpers.lakes import entry, seal_all
from helpers.log import blocks

PAGE = Path(__file__).parents[2] / "docs/operator/lake.md"
DAY = 20_782 * 86_400.0
"""2026-11-25, as on the page."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Any, ...]]]:
    """A lake with two clusters and two days, and the answer of the log."""
    directory, now = tmp_path_factory.mktemp("lake"), DAY
    numbers = np.random.default_rng(1)
    made = Lake.at(directory / "lake")
    with Store(directory / "log.duckdb", system=calendar_at(lambda: now), lake=made.data) as store:
        for part in range(6):
            now = DAY + 86_400.0 * (part // 4)
            entries = []
            for job in range(15):
                cluster = "hpc" if job % 5 else "other"
                values = blocks(20, 20 * part, f"{cluster}/{job}.0.0")
                seconds = numbers.exponential(size=20)
                moments = {"sum_seconds": seconds, "min_seconds": seconds, "max_seconds": seconds}
                moments |= {"sum_squares": seconds**2, "sum_cubes": seconds**3}
                entries.append(entry("blocks", 20, values | moments))
            store.commit(entries, {"s": part + 1})
            seal_all(store, made)
        with store.cursor() as log:
            answer = log.execute(
                "SELECT job, sum(count)::BIGINT, sum(sum_seconds) FROM blocks_20261125 WHERE job LIKE 'hpc/%'"
                " GROUP BY job ORDER BY 3 DESC LIMIT 10"
            ).fetchall()
    return directory / "lake", answer


def _blocks_of(language: str, lake: Path) -> list[str]:
    """The code on the page, for this lake."""
    text = PAGE.read_text().partition("## Reading it")[2]
    return [
        code.replace("/srv/barograph-lake", str(lake)) for code in re.findall(rf"```{language}\n(.*?)```", text, re.S)
    ]


def _same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    return len(expected) == 10 and all(
        (a[0], a[1]) == (b[0], b[1]) and a[2] == pytest.approx(b[2]) for a, b in zip(found, expected, strict=True)
    )


_connect = duckdb.connect


def _with_extension() -> duckdb.DuckDBPyConnection:
    """A connection that has what others install."""
    connection = _connect(config={"allow_unsigned_extensions": True})
    connection.execute(f"LOAD '{extension('ducklake')}'")
    return connection


def test_duckdb_reads_the_lake(lake: tuple[Path, list[tuple[Any, ...]]]) -> None:
    query, _ = _blocks_of("sql", lake[0])
    with _with_extension() as connection:
        assert _same(connection.execute(query).fetchall(), lake[1])


@pytest.mark.parametrize(("program", "number"), [("polars", 1), ("pandas", 2), ("pyspark", 3)])
def test_other_programs_read_the_files_of_the_lake(
    program: str, number: int, lake: tuple[Path, list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(program) is None:
        if program != "pyspark" and os.environ.get("CI"):
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")
    codes = _blocks_of("python", lake[0])
    monkeypatch.setattr(duckdb, "connect", _with_extension)
    names: dict[str, Any] = {}
    exec(codes[0], names)
    exec(codes[number], names)
    found = names["found"]
    rows = found.rows() if program == "polars" else list(found.itertuples(index=False, name=None))
    assert _same(rows, lake[1])
