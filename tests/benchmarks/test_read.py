"""Reading the log like a daemon, compared with fetching the same rows from DuckDB in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

from barograph_collector.client.log_reader import LogReader
from barograph_lab.bench.load import Load
from barograph_lab.bench.measured_collector import MeasuredCollector
from helpers.printed import show

ROWS = 1_000_000
FLOOR_ROWS_PER_SECOND = 100_000


def timed(work: Callable[[], int]) -> float:
    """Rows per second, the best of three."""
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        rows = work()
        best = max(best, rows / (time.perf_counter() - began))
    return best


def test_reading_a_million_rows(tmp_path: Path) -> None:
    with MeasuredCollector(tmp_path) as collector:
        load = Load(collector.endpoint, 50, 1000, "read")
        assert load.open(60.0)
        stored = 0
        while stored < ROWS:
            stored = load.saturate(1.0, 4).records
        load.close()
        with LogReader(collector.endpoint, 60.0) as reader:
            through = timed(lambda: sum(batch.rows for batch in reader.read_all("blocks")))
            asked = timed(lambda: int(reader.query("SELECT * FROM blocks LIMIT 60000", 60_000).rows))
    with duckdb.connect(str(next(tmp_path.glob("*.duckdb"))), read_only=True) as own:
        arrow = timed(lambda: int(own.execute("SELECT * FROM blocks").to_arrow_table().num_rows))
        arrays = timed(lambda: len(np.asarray(own.execute("SELECT * FROM blocks").fetchnumpy()["log_offset"])))
    rates = {
        "`read`, page by page": through,
        "`sql`, 60,000 rows at a time": asked,
        "DuckDB in process, Arrow": arrow,
        "DuckDB in process, numpy": arrays,
    }
    show(
        f"reading {stored:,} rows of blocks",
        [f"{name:<32}{rate:12,.0f} rows/s   x{rate / arrow:.2f} of Arrow in process" for name, rate in rates.items()],
    )
    assert through > FLOOR_ROWS_PER_SECOND
