"""The same rows in the lake, in PostgreSQL and in ClickHouse: bytes of a row, rows loaded a second, three questions.

PostgreSQL has them by COPY from files, 500,000 rows a transaction, then an index by job and
statistics; everything else is as it is by default, but for `fsync`, which is off: it is as fast as it can be here.

ClickHouse is that of the package `chdb` (`pip install chdb`, half a gigabyte), in this process. Where it is not
installed, a line says that it is left out. It has the rows from the same files, each an insertion, in a MergeTree
ordered by job and time, which is merged in the end.
"""

from __future__ import annotations

import importlib.util
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pytest
from pyarrow import csv

from barograph_agent.protocol.tables import TABLES, Kind
from barograph_collector.lake.place import Lake
from barograph_collector.storage.days.retention import DAY_SECONDS
from barograph_collector.storage.rows import CheckedRows
from barograph_collector.storage.store import LOG, Store
from helpers.clocks import calendar_at
from helpers.lakes import any_rows, entry, opened, seal_all
from helpers.log import blocks
from helpers.postgres import Postgres
from helpers.printed import show

BATCH_ROWS: Final = 500_000
FIRST, DAYS, JOBS_OF_DAY, JOB_ROWS = 20_000, 4, 100, 10_000
TYPES: Final = {Kind.F64: "double precision", Kind.I64: "bigint", Kind.U64: "numeric(20)", Kind.NAME: "text"}
ASKED: Final = 5
Answer = list[list[object]]
QUESTIONS: Final = {
    "one job, by class": "SELECT class_id, sum(count), sum(sum_seconds), max({greatest}) FROM {blocks}"
    " WHERE job = 'hpc/77.0.0' GROUP BY class_id ORDER BY class_id",
    "longest jobs of a day": "SELECT job, sum(sum_seconds) AS seconds FROM {blocks}"
    f" WHERE ended_at >= {(FIRST + 1) * 86400} AND ended_at < {(FIRST + 2) * 86400}"
    " GROUP BY job ORDER BY seconds DESC, job LIMIT 10",
    "all rows, by class": "SELECT class_id, sum(count), avg(sum_seconds), max({greatest}) FROM {blocks}"
    " GROUP BY class_id ORDER BY class_id",
}


def rows_of_job(number: int, start: float, random: np.random.Generator) -> CheckedRows:
    """Single intervals, whose durations are whole nanoseconds as clocks have them."""
    seconds = np.rint(1e6 * (10 + random.gamma(2.0, 1.0, JOB_ROWS))) * 1e-9
    values = blocks(JOB_ROWS, job=f"hpc/{number}.0.0") | {
        "class_id": (np.arange(JOB_ROWS) % 10).astype(np.uint64),
        **{f"sum_{name}": seconds**power for power, name in ((1, "seconds"), (2, "squares"), (3, "cubes"))},
        **dict.fromkeys(("min_seconds", "max_seconds"), seconds),
        "ended_at": start + np.cumsum(seconds),
    }
    return entry("blocks", JOB_ROWS, values)


class Server(Postgres):
    """With a client of its own."""

    def ask(self, *statements: str) -> str:
        """What psql prints."""
        command = [str(self._bin / "psql"), "-X", "-At", "-v", "ON_ERROR_STOP=1", self.url("rival")]
        for statement in statements:
            command += ["-c", statement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


CLICKHOUSE_TYPES: Final = {Kind.F64: "Float64", Kind.I64: "Int64", Kind.U64: "UInt64", Kind.NAME: "String"}


class ClickHouse:
    """ClickHouse in this process. Nothing without the package."""

    def __init__(self, directory: Path) -> None:
        from chdb import session

        self._session = session.Session(str(directory))
        columns = {name: CLICKHOUSE_TYPES[kind] for name, kind in TABLES["blocks"].columns.items()}
        self._structure = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        self.ask("CREATE DATABASE rival")
        self.ask(f"CREATE TABLE rival.blocks ({self._structure}) ENGINE = MergeTree ORDER BY (job, ended_at)")

    def ask(self, statement: str) -> list[list[str]]:
        """The rows, as texts."""
        return [line.split("\t") for line in str(self._session.query(statement, "TSV")).splitlines()]

    def load(self, part: Path) -> float:
        """Seconds that a file takes."""
        began = time.perf_counter()
        self.ask(f"INSERT INTO rival.blocks SELECT * FROM file('{part}', CSV, '{self._structure}')")
        return time.perf_counter() - began

    def merge(self) -> float:
        """Seconds until there is one part."""
        began = time.perf_counter()
        self.ask("OPTIMIZE TABLE rival.blocks FINAL")
        return time.perf_counter() - began

    def size(self) -> int:
        """Bytes on disk."""
        ((size,),) = self.ask("SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'rival' AND active")
        return int(size)

    def asked(self, question: str) -> tuple[float, Answer]:
        """As `asked_of_lake`."""
        text = question.format(blocks="rival.blocks", greatest="max_seconds")
        took = []
        for _ in range(ASKED + 1):
            began = time.perf_counter()
            rows = self.ask(text)
            took.append(time.perf_counter() - began)
        return statistics.median(took[1:]), [[row[0], *map(float, row[1:])] for row in rows]

    def close(self) -> None:
        """End it."""
        self._session.close()


def clickhouse(directory: Path) -> ClickHouse | None:
    """ClickHouse, where the package is installed."""
    return ClickHouse(directory) if importlib.util.find_spec("chdb") is not None else None


def asked_of_lake(lake: duckdb.DuckDBPyConnection, question: str) -> tuple[float, Answer]:
    """Seconds, the median of some, and the rows."""
    text = question.format(blocks="lake.blocks", greatest="coalesce(max_seconds, sum_seconds)")
    took = []
    for _ in range(ASKED + 1):
        began = time.perf_counter()
        rows = lake.execute(text).fetchall()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:]), [[str(row[0]), *map(float, row[1:])] for row in rows]


def asked_of_server(server: Server, question: str) -> tuple[float, Answer]:
    """The same."""
    text = question.format(blocks="blocks", greatest="max_seconds")
    took = server.ask("\\timing on", *[text] * (ASKED + 1))
    seconds = [float(found) / 1e3 for found in re.findall(r"^Time: ([\d.]+) ms", took, re.MULTILINE)]
    rows = [line.split("|") for line in server.ask(text).splitlines()]
    return statistics.median(seconds[1:]), [[row[0], *map(float, row[1:])] for row in rows]


@pytest.mark.timeout(1800)
def test_the_lake_beside_postgresql_and_clickhouse(tmp_path: Path) -> None:
    random, day = np.random.default_rng(1), FIRST
    made, system = Lake.at(tmp_path / "lake"), calendar_at(lambda: day * DAY_SECONDS)
    with Server() as server, Store(tmp_path / LOG, system=system, lake=made.data) as store:
        server.database("rival")
        columns = ", ".join(f"{name} {TYPES[kind]}" for name, kind in TABLES["blocks"].columns.items())
        server.ask(f"CREATE TABLE blocks ({columns})")
        loaded = 0.0
        for number in range(DAYS * JOBS_OF_DAY):
            day = FIRST + number // JOBS_OF_DAY
            store.commit([rows_of_job(number, day * DAY_SECONDS + number, random)], {"s": number + 1})
        day += 1
        store.commit([any_rows("bands", 1, random)], {"s": 10**6})  # the last day has ended
        began = time.perf_counter()
        seal_all(store, made)
        sealed = time.perf_counter() - began
        rows = DAYS * JOBS_OF_DAY * JOB_ROWS
        part = server.directory / "part.csv"
        third, inserted = clickhouse(tmp_path / "clickhouse"), 0.0
        for first in range(0, rows, BATCH_ROWS):
            with store.cursor() as log:
                within = f"log_offset BETWEEN {first + 1} AND {first + BATCH_ROWS}"
                batch = log.execute(f"SELECT {', '.join(TABLES['blocks'].columns)} FROM blocks WHERE {within}")
                csv.write_csv(batch.to_arrow_table(), part, csv.WriteOptions(include_header=False))
            began = time.perf_counter()
            server.ask(f"\\copy blocks FROM '{part}' CSV")
            loaded += time.perf_counter() - began
            if third is not None:
                inserted += third.load(part)
        began = time.perf_counter()
        server.ask("CREATE INDEX ON blocks (job)", "VACUUM ANALYZE blocks")
        indexed = time.perf_counter() - began
        table, index = map(int, server.ask("SELECT pg_table_size('blocks'), pg_indexes_size('blocks')").split("|"))
        optimized = third.merge() if third is not None else 0.0
        took: dict[str, tuple[float, float, float | None]] = {}
        with opened(tmp_path / "lake") as lake:
            query = "SELECT sum(data_file_size_bytes) FROM ducklake_list_files('lake', 'blocks')"
            (size,) = lake.execute(query).fetchone() or (0,)
            for question, text in QUESTIONS.items():
                (ours, found), (theirs, expected) = asked_of_lake(lake, text), asked_of_server(server, text)
                assert [row[0] for row in found] == [row[0] for row in expected]
                assert found == [[row[0], *map(approximately, row[1:])] for row in expected]
                took[question] = ours, theirs, None
                if third is not None:
                    seconds, rest = third.asked(text)
                    assert rest == [[row[0], *map(approximately, row[1:])] for row in expected]
                    took[question] = ours, theirs, seconds
    others = "" if third is not None else "; ClickHouse is not installed: pip install chdb"
    of_third = [] if third is None else [
        f"ClickHouse     {third.size() / rows:.1f} bytes a row, {rows / inserted:9,.0f} rows a second and"
        f" {optimized:.1f} s for the last merge"
    ]  # fmt: skip
    if third is not None:
        third.close()
    show(
        f"{rows:,} rows of {DAYS} days in the lake and in PostgreSQL{others}",
        [
            f"bytes a row    lake {size / rows:.1f}, PostgreSQL {table / rows:.1f} and {index / rows:.1f} of an index",
            f"rows a second  lake {rows / sealed:9,.0f},"
            f" PostgreSQL {rows / loaded:9,.0f} and {indexed:.1f} s for the index and VACUUM",
            *of_third,
            *(
                f"{question:<22} lake {ours * 1e3:.0f} ms, PostgreSQL {theirs * 1e3:.0f} ms, ratio {theirs / ours:.1f}"
                + ("" if seconds is None else f", ClickHouse {seconds * 1e3:.0f} ms, ratio {seconds / ours:.2f}")
                for question, (ours, theirs, seconds) in took.items()
            ),
        ],
    )
    assert 4 * size < table


def approximately(value: float) -> object:
    """Sums differ by the order of their terms."""
    return pytest.approx(value, rel=1e-9)
