"""Logs with a lake, and what other programs read of it."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.lake.catalog import CATALOG_FILE
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import Sealer
from barograph_collector.storage.days.data_path import DATA
from barograph_collector.storage.days.extensions import extension
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET, restored
from barograph_collector.storage.rows import Entry
from barograph_collector.storage.store import Store


def entry(table: str, rows: int, values: dict[str, object]) -> Entry:
    """Rows as they come from a message."""
    return Entry(table, rows, wire.pack(values, TABLES[table].columns))  # type: ignore[arg-type]


def any_rows(table: str, rows: int, random: np.random.Generator, clusters: int = 3) -> Entry:
    """Rows of a table with values of every kind, of jobs of several clusters."""
    values: dict[str, object] = {}
    for name, kind in TABLES[table].columns.items():
        if name == "job":
            values[name] = [f"c{random.integers(clusters)}/{random.integers(9)}.0.0" for _ in range(rows)]
        elif kind.is_text:
            values[name] = [f"{name}-{random.integers(9)}" for _ in range(rows)]
        elif np.issubdtype(kind.dtype, np.floating):
            values[name] = random.exponential(size=rows)
        else:
            values[name] = random.integers(0, 2**40, rows).astype(kind.dtype)
    return entry(table, rows, values)


def job_row(job: str, user: str, number: int) -> Entry:
    """A row of `jobs`."""
    values: dict[str, object] = {}
    for name, kind in TABLES["jobs"].columns.items():
        values[name] = [f"{name}-{number}"] if kind.is_text else np.array([number + 1]).astype(kind.dtype)
    return entry("jobs", 1, {**values, "job": [job], "user": [user], "cluster": [job.partition("/")[0]]})


def loaded(*extensions: str) -> duckdb.DuckDBPyConnection:
    """A connection with these extensions, whose signatures DuckDB does not check: that takes it longer than a test."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": True})
    for name in extensions:
        connection.execute(f"LOAD '{extension(name)}'")
    return connection


@contextmanager
def opened(lake: Path, catalog: str = "") -> Iterator[duckdb.DuckDBPyConnection]:
    """The lake as any DuckDB reads it, as `lake`. catalog: URL of its database; empty for the file."""
    with loaded("ducklake", *(["postgres_scanner"] if catalog else [])) as connection:
        place = f"postgres:{catalog}" if catalog else lake / CATALOG_FILE
        connection.execute(f"ATTACH 'ducklake:{place}' AS lake (DATA_PATH '{lake / DATA}', READ_ONLY)")
        yield connection


def rows_of(lake: Path, *tables: str, catalog: str = "") -> list[list[tuple[Any, ...]]]:
    """The rows of each of these tables as they were in the log, in the order of their offsets."""
    with opened(lake, catalog) as connection:
        return attached_rows(connection, *tables)


def attached_rows(connection: duckdb.DuckDBPyConnection, *tables: str) -> list[list[tuple[Any, ...]]]:
    """The same of a lake that is attached as `lake`."""
    return [
        connection.execute(
            f"SELECT {', '.join(restored(table, column) for column in LOG_COLUMNS[table])}"
            f' FROM lake."{table}" ORDER BY "{OFFSET}"'
        ).fetchall()
        for table in tables
    ]


SEAL_FOREVER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import Sealer
from barograph_collector.storage.store import Store
from helpers.lakes import any_rows
import numpy as np
state, place, url = Path(sys.argv[1]), sys.argv[3], sys.argv[4]
lake = Lake.find(place, state, url, environment=os.environ)
with Store(state / "log.duckdb", lake=lake.data, period_seconds=0.001) as store:
    sealer = Sealer(store, lake)
    print("begun", flush=True)
    for number in range(10**6):
        store.commit([any_rows(t, 200, np.random.default_rng(), 2) for t in ("blocks", "runs")], {"s": store.head + 1})
        sealer.poll()
        print("sealed", flush=True)
"""
"""A process for `kill_sealers`. Its arguments: the directories of state and tests, the lake, the URL of its catalog."""


def kill_sealers(
    command: Sequence[str],
    times: int,
    chance: random.Random,
    stop: Callable[[], None] | None = None,
    start: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a sealer that prints `begun`, and `sealed` after a period, and kill it at a random instant, so often.

    stop, start: of the server with the lake or its catalog, which is away every other time.
    """
    for number in range(times):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            for _ in range(chance.randrange(1, 4)):
                assert process.stdout.readline() == b"sealed\n"
            time.sleep(chance.uniform(0.0, 0.5))
            if stop is not None and number % 2:
                stop()
                time.sleep(chance.uniform(0.0, 0.5))
                assert process.poll() is None
                start()
            process.send_signal(signal.SIGKILL)


def seal_all(store: Store, lake: Lake, **options: Any) -> None:
    """Let the lake have all rows, as if the present period had ended."""
    sealer = Sealer(store, lake, **options)
    store.database.begin_period(max([store.period, *(period.number for period in store.database.periods.unsealed)]) + 1)
    while sealer.seal():
        pass
    sealer.close()


def logged(store: Store, *tables: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each of these tables in the log."""
    with store.cursor() as log:
        return [log.execute(f'SELECT * FROM "{table}" ORDER BY "{OFFSET}"').fetchall() for table in tables]


def alike(left: list[list[tuple[Any, ...]]], right: list[list[tuple[Any, ...]]]) -> bool:
    """Whether rows are the same. The cube of a duration is restored but for its last digits."""
    return all(
        len(some) == len(others)
        and all(
            a == b or (isinstance(a, float) and a == pytest.approx(b, rel=1e-14, nan_ok=True))
            for one, other in zip(some, others, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        for some, others in zip(left, right, strict=True)
    )
