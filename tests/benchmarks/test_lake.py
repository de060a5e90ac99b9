"""The size of intervals in the lake beside database and journal, and how much of it a question about a job reads.

Real runs of LAMMPS, watched; their rows are then those of many jobs that ran at once. So that no job has the digits of
another one, durations of each copy differ at random by a thousandth, and times by 10 us.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from barograph_agent.protocol import wire
from barograph_collector.lake.place import Lake
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.store import Store
from helpers.clocks import system_at
from helpers.lakes import alike, entry, logged, rows_of, seal_all
from helpers.lammps import fluid
from helpers.up import Up

RUNS = {"small": (5, 40_000), "medium": (10, 10_000), "large": (16, 2_000)}
"""Cells and steps: 2,500, 400 and 150 intervals a second on two ranks."""
COPIES = 40
MAX_INTERVAL_BYTES = 12.0


def watched(directory: Path) -> dict[str, dict[str, Any]]:
    """The rows of `blocks` of each run."""
    bin_directory = Path(sys.executable).parent
    lmp = [bin_directory / "mpiexec", "-n", "2", bin_directory / "lmp", "-log", "none", "-screen", "none", "-in"]
    with Up(directory) as service:
        environment = {**service.environment, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
        for name, (cells, steps) in RUNS.items():
            (directory / name).write_text(fluid(cells, steps))
            command = [sys.executable, "-m", "barograph", "run", "--app", name, "--", *map(str, lmp), name]
            subprocess.run(command, cwd=directory, env=environment, check=True, timeout=600, capture_output=True)
    with duckdb.connect(directory / "state/log.duckdb", read_only=True) as log:
        query = (
            "SELECT b.* EXCLUDE (log_offset) FROM blocks b JOIN jobs USING (job) WHERE app = ? ORDER BY b.log_offset"
        )
        return {name: log.execute(query, [name]).fetchnumpy() for name in RUNS}


def varied(columns: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Rows of another run of the same work. Durations stay whole nanoseconds, as clocks have them."""
    rows = len(columns["count"])
    factor = 1 + 1e-3 * random.standard_normal(rows)
    one = columns["count"] == 1
    found = columns | {name: np.rint(columns[name] * factor * 1e9) * 1e-9 for name in ("min_seconds", "max_seconds")}
    seconds = np.where(one, found["min_seconds"], columns["sum_seconds"] * factor)
    squares = np.where(one, seconds**2, columns["sum_squares"] * factor**2)
    cubes = np.where(one, seconds**3, columns["sum_cubes"] * factor**3)
    ended = columns["ended_at"] + 1e-5 * random.standard_normal(rows)
    return found | {"sum_seconds": seconds, "sum_squares": squares, "sum_cubes": cubes, "ended_at": ended}


@pytest.mark.timeout(1800)
def test_an_interval_takes_at_most_12_bytes_and_a_job_is_found_without_reading_all(tmp_path: Path) -> None:
    runs = watched(tmp_path)
    now = 20_000 * 86_400.0
    journal = Journal(tmp_path / "journal")
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / "log.duckdb", system=system_at(lambda: now), lake=lake.data) as store:
        random, seq = np.random.default_rng(1), 0
        # Of each job a second at a time, as sidecars send them.
        for second in range(600):
            entries = []
            for name, columns in runs.items():
                ended = columns["ended_at"] - columns["ended_at"][0]
                chosen = (ended >= second) & (ended < second + 1)
                if not (rows := int(chosen.sum())):
                    continue
                for copy in range(COPIES):
                    values = varied({key: np.asarray(value)[chosen] for key, value in columns.items()}, random)
                    values["job"] = f"hpc/{name}{copy}.0.0"
                    entries.append(entry("blocks", rows, values))
                    journal.append([wire.encode(wire.append(values["job"], 1, "blocks", rows, values))])
            if entries:
                seq += 1
                store.commit(entries, {"s": seq})
        began = time.perf_counter()
        seal_all(store, lake)
        seconds = time.perf_counter() - began
        assert alike(rows_of(tmp_path / "lake", "blocks"), logged(store, "blocks"))
        store.checkpoint()
        with store.cursor() as log:
            counted = log.execute("SELECT count(*), sum(count), count(*) FILTER (count = 1) FROM blocks").fetchone()
            used = log.execute("SELECT block_size * used_blocks FROM pragma_database_size()").fetchone()
            journal_bytes = sum(path.stat().st_size for path in (tmp_path / "journal").iterdir())
            raw_share = log.execute("SELECT avg((count = 1)::INT) FROM blocks WHERE job LIKE 'hpc/large%'").fetchone()
    assert counted
    assert used
    rows, intervals, raw = map(int, counted)
    (day,) = (tmp_path / "lake/data/main/blocks/day=2024-10-04").glob("*.parquet")
    merged = pq.ParquetFile(day).metadata
    groups = [merged.row_group(number) for number in range(merged.num_row_groups)]
    sizes = {kind: _raw_bytes(tmp_path, day, where) for kind, where in (("raw", "count = 1"), ("reduced", "count > 1"))}
    read = [_touched(groups, f"hpc/{name}{copy}.0.0") for name in RUNS for copy in range(COPIES)]
    size = day.stat().st_size
    print(
        f"\n{rows:,} rows of {len(RUNS) * COPIES} jobs, {intervals:,} intervals; {raw / rows:.0%} of rows are one"
        f"\n{'':24}{'bytes a row':>14}{'an interval':>14}"
        f"\n{'lake':24}{size / rows:14.1f}{size / intervals:14.2f}"
        f"\n{'DuckDB':24}{used[0] / rows:14.1f}{used[0] / intervals:14.2f}"
        f"\n{'journal':24}{journal_bytes / rows:14.1f}{journal_bytes / intervals:14.2f}"
        f"\nrows of one interval {sizes['raw']:.1f} bytes, of several {sizes['reduced']:.1f}"
        f"\na question about one job reads {np.mean(read):.1%} of the period, {max(read):.1%} at most"
        f"\nsealed in {seconds:.1f} s: {rows / seconds:,.0f} rows a second"
    )
    assert raw_share == (1.0,)  # whose rows are intervals
    assert sizes["raw"] <= MAX_INTERVAL_BYTES
    assert size / intervals <= MAX_INTERVAL_BYTES
    assert np.mean(read) < 0.2


def _raw_bytes(directory: Path, day: Path, where: str) -> float:
    """Bytes of a row in a file of only these."""
    part = directory / "part.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * FROM read_parquet('{day}', hive_partitioning => false) WHERE {where})"
            f" TO '{part}' (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd)"
        )
    return part.stat().st_size / pq.ParquetFile(part).metadata.num_rows


def _touched(groups: list[Any], job: str) -> float:
    """The share of bytes in row groups that may have this job, by their smallest and largest one."""
    sizes = [group.total_byte_size for group in groups]
    columns = {groups[0].column(number).path_in_schema: number for number in range(groups[0].num_columns)}
    bounds = [group.column(columns["job"]).statistics for group in groups]
    return sum(size for size, bound in zip(sizes, bounds, strict=True) if bound.min <= job <= bound.max) / sum(sizes)
