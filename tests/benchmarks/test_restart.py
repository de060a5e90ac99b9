"""How long a restarted modeler and a restarted alerts daemon take until they judge a new job, at every size of history.

Rows are generated: jobs of 1,000 blocks over 10 days, of 200 workloads, with what agents and daemons write of them.
The first has not ended: its end was lost, or it runs still. `make bench PYTEST="-k restarted"` takes 1 and 3 million
rows of blocks, `-k ten_million` ten. BAROGRAPH_RESTART_BLOCKS: rows of a job.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pytest

from barograph_agent.protocol.tables import TABLES
from barograph_alerts.processor import Scorer
from barograph_collector.client.log_reader import LogReader
from barograph_collector.storage.days.retention import DAY_SECONDS
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS
from barograph_collector.storage.store import LOG, Store
from barograph_collector.storage.text import literal
from barograph_modeler.learning.learner import Learner
from helpers.clocks import calendar_at
from helpers.jobs import Simulation
from helpers.log import Daemon, Producer, wait_until
from helpers.printed import show

DAYS: Final = 10
FIRST: Final = 20_000
BLOCKS: Final = int(os.environ.get("BAROGRAPH_RESTART_BLOCKS", "1000"))
"""Rows of a job."""
COUNT: Final = 16_000 // BLOCKS
"""Intervals of a row."""
STRIDE: Final = 2_000
"""Offsets of a job."""
WORKLOADS: Final = 200
SIZES: Final = {"one_million": 1_000_000, "three_million": 3_000_000, "ten_million": 10_000_000}
MAX_SECONDS: Final = 10.0
"""From the start of a daemon until it has judged a new job; printed, and not asserted: it is wall-clock time."""
JOB, WORKLOAD, BEGAN, ENDED = "'hpc/' || n || '.0.0'", f"'hpc/app' || n % {WORKLOADS} || '@2x1'", "began", "began + 40"
OF_JOB: Final[Mapping[str, Mapping[str, Any]]] = {
    "jobs": {
        "app": f"'app' || n % {WORKLOADS}", "cluster": "'hpc'", "user": "'u'", "params": "'{}'", "ranks": 2, "nodes": 2,
        "host": "'n0'", "started_at": BEGAN, "scheduler": "'slurm'",
    },
    "works": {
        "executable": f"md5('app' || n % {WORKLOADS})", "program": f"md5('app' || n % {WORKLOADS})", "words": "'[]'",
        "inputs": "'[]'", "ranks": 2, "nodes": 2, "ranks_per_node": 1, "threads": 1, "plain": "''",
    },
    "assignments": {"family": WORKLOAD, "how": "'same'", "reason": "'asked for the same'", "at": "began + 2"},
    "runs": {"ended_at": ENDED, "runtime_seconds": 40.0, "intervals": BLOCKS * COUNT},
}  # fmt: skip
"""Columns of the rows that a job has once, as SQL of its number `n` and its `began`; without those that are 0 or empty,
`job` and `workload`."""


def learned() -> dict[str, list[dict[str, Any]]]:
    """Rows that daemons write about one run, by table, with each column's value."""
    simulation, learner, scorer = Simulation(intervals=BLOCKS * COUNT), Learner(refit_seconds=9.0), Scorer()
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(4):
        one = simulation.job()
        for processor in (learner, scorer):
            for table, columns in one.items():
                processor.observe(table, columns, simulation.now)
        found.clear()
        outputs = scorer.step(simulation.now)
        for output in outputs:
            learner.observe(output.table, whole(output.rows, output.columns), simulation.now)
        outputs += learner.step(simulation.now)
        for output in outputs:
            columns = whole(output.rows, output.columns)
            scorer.observe(output.table, columns, simulation.now)
            rows = zip(*columns.values(), strict=True)
            found.setdefault(output.table, []).extend(dict(zip(columns, row, strict=True)) for row in rows)
    assert set(found) == {"scores", "bands", "paces"}, found.keys()
    return found


def whole(rows: int, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of which each has all rows."""
    return {
        name: value if isinstance(value, list | np.ndarray) and len(value) == rows else [value] * rows
        for name, value in columns.items()
    }


def generate(root: Path, rows: int) -> tuple[int, float]:
    """A log; returns the number of its jobs, and the time of its end. Job 0 has not ended."""
    jobs = rows // BLOCKS
    with Store(root / LOG, system=calendar_at(lambda: FIRST * DAY_SECONDS)):
        pass
    templates = learned()
    with duckdb.connect(root / LOG, config={"memory_limit": "2GB"}) as log:
        for table in DAILY:
            log.execute(f'DROP VIEW "{table}"')
        log.execute("DELETE FROM partitions")
        of_day = -(-jobs // DAYS)
        began = f"{FIRST * DAY_SECONDS} + n * {DAY_SECONDS / of_day}"
        for table, columns in OF_JOB.items():
            ended = " WHERE n > 0" if table == "runs" else ""
            _insert(log, table, table, columns, 1 + list(OF_JOB).index(table) + (1500 if ended else 0),
                    f"(SELECT n, {began} AS began FROM range({jobs}) t(n){ended})")  # fmt: skip
        for table in ("bands", "paces"):
            for number, row in enumerate(templates[table]):
                constant = {name: _sql(value) for name, value in row.items()} | {"fitted_at": ENDED}
                _insert(log, table, table, constant, 1600 + 100 * (table == "paces") + number,
                        f"(SELECT n, {began} AS began FROM range({jobs}) t(n))")  # fmt: skip
            # A table is read in the order of insertion.
            log.execute(f'CREATE TEMP TABLE "sorted" AS SELECT * FROM "{table}" ORDER BY "offset"')
            log.execute(f'TRUNCATE "{table}"')
            log.execute(f'INSERT INTO "{table}" FROM "sorted"')
            log.execute('DROP TABLE "sorted"')
        for day in range(DAYS):
            first, last = day * of_day, min((day + 1) * of_day, jobs)
            log.execute("INSERT INTO partitions VALUES (?, ?, true, false)", [FIRST + day, first * STRIDE + 1])
            date = f"{np.datetime64(FIRST + day, 'D')}".replace("-", "")
            for table in DAILY:
                columns = ", ".join(f'"{name}" {kind}' for name, kind in LOG_COLUMNS[table].items())
                log.execute(f'CREATE TABLE IF NOT EXISTS "{table}_{date}" ({columns})')
            source = f"(SELECT n, {began} AS began FROM range({first}, {last}) t(n))"
            (score,) = (row for row in templates["scores"] if row["final"])
            constant = {name: _sql(value) for name, value in score.items()} | {"at": ENDED}
            _insert(log, "scores", f"scores_{date}", constant, 1900, source.replace(" t(n)", " t(n) WHERE n > 0"))
            seconds = f"if(k % 2 = 0, 0.004, 0.001) * {COUNT} * (0.98 + 0.04 * random())"
            _insert(log, "blocks", f"blocks_{date}",
                    {"class_id": "11 + 11 * (k % 2)", "first_index": f"k * {COUNT}", "count": COUNT, "sum_seconds": "s",
                     "sum_squares": f"s * s / {COUNT}", "sum_cubes": f"s * s * s / {COUNT**2}",
                     "min_seconds": f"s / {COUNT}", "max_seconds": f"s / {COUNT}",
                     "ended_at": f"began + 40.0 * k / {BLOCKS}"}, "100 + k",
                    f"(SELECT *, {seconds} AS s FROM {source}, range({BLOCKS}) b(k) ORDER BY n, k)")  # fmt: skip
            _insert(log, "node_blocks", f"node_blocks_{date}",
                    {"host": "'n' || k % 2", "ranks": 1, "first_index": "k // 2 * 16", "length": 16, "count": 16,
                     "last_rank": "k % 2", "last_count": 8, "own_rank": "k % 2", "own_rank_seconds": 0.6,
                     "own_seconds": 0.6, "wait_seconds": 0.01, "ended_at": f"began + 40.0 * k / {max(BLOCKS // 8, 1)}"},
                    "1100 + k",
                    f"(SELECT * FROM {source}, range({max(BLOCKS // 8, 1)}) b(k) ORDER BY n, k)")  # fmt: skip
        log.execute("INSERT INTO streams VALUES ('', 1, ?)", [jobs * STRIDE])
    with Store(root / LOG, system=calendar_at(lambda: (FIRST + DAYS) * DAY_SECONDS)):
        pass
    return jobs, (FIRST + DAYS) * DAY_SECONDS + 1.0


def _insert(
    log: duckdb.DuckDBPyConnection, table: str, target: str, columns: Mapping[str, Any], at: Any, source: str
) -> None:
    """Rows of a table, with an offset of `at` behind the first of its job."""
    known = {"offset": f"n * {STRIDE} + {at}", "job": JOB, "workload": WORKLOAD}
    values = []
    for name, kind in LOG_COLUMNS[table].items():
        default = TABLES[table].defaults.get(name, "" if kind == "VARCHAR" else 0)
        value = known.get(name, columns.get(name, _sql(default)))
        values.append(f'({value})::{kind} AS "{name}"')
    log.execute(f'INSERT INTO "{target}" SELECT {", ".join(values)} FROM {source}')


def _sql(value: Any) -> str:
    return literal(str(value))


@contextmanager
def daemon(name: str, endpoint: str, directory: Path, *options: str) -> Iterator[float]:
    """`barograph modeler` or `alerts` as a process; the time of its start by `time.perf_counter`."""
    command = [sys.executable, "-m", f"barograph_{name}.main", "--collector", endpoint, "--metrics", "127.0.0.1:0"]
    with (directory / f"{name}.log").open("ab") as log:
        began = time.perf_counter()
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
        try:
            yield began
        finally:
            assert process.poll() is None, (directory / f"{name}.log").read_text()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class NewJob:
    """A job that begins after the history, and ends."""

    def __init__(self, producer: Producer, numbers: Iterator[int], number: int, now: float) -> None:
        """numbers: of messages."""
        self.name = f"hpc/{number}.0.0"
        self._producer, self._numbers, self._number, self._now = producer, numbers, number, now

    def run(self, *, assigned: bool, slow: bool = True) -> None:
        """Append its rows. assigned: whether the modeler has found its group."""
        with duckdb.connect() as engine:
            for table, columns in OF_JOB.items():
                if table == "assignments" and not assigned:
                    continue
                if table == "runs":
                    self._append("blocks", BLOCKS, self._blocks(2.0 if slow else 1.0))
                known = {"job": JOB, "workload": WORKLOAD}
                values = []
                for name, kind in LOG_COLUMNS[table].items():
                    if name != "offset":
                        default = TABLES[table].defaults.get(name, "" if kind == "VARCHAR" else 0)
                        values.append(f'({known.get(name, columns.get(name, _sql(default)))})::{kind} AS "{name}"')
                source = f"(SELECT {self._number} AS n, {self._now} AS began)"
                found = engine.sql(f"SELECT {', '.join(values)} FROM {source}")
                (row,) = found.fetchall()
                self._append(table, 1, {name: [value] if isinstance(value, str) else value
                                        for name, value in zip(found.columns, row, strict=True)})  # fmt: skip

    def _blocks(self, factor: float) -> dict[str, Any]:
        rng = np.random.default_rng(self._number)
        k = np.arange(BLOCKS)
        each = np.where(k % 2 == 0, 0.004, 0.001) * factor * rng.uniform(0.98, 1.02, BLOCKS)
        return {
            "job": self.name, "world": 0, "class_id": (11 + 11 * (k % 2)).astype(np.uint64), "first_index": k * COUNT,
            "count": COUNT, "sum_seconds": each * COUNT, "sum_squares": each**2 * COUNT, "sum_cubes": each**3 * COUNT,
            "min_seconds": each, "max_seconds": each, "ended_at": self._now + np.cumsum(each) * COUNT,
        }  # fmt: skip

    def _append(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        number = next(self._numbers)
        self._producer.append(number, table, rows, columns)
        self._producer.receive_ack(number)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", SIZES)
def test_restarted_daemons_judge_a_new_job(size: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if size == "ten_million" and size not in request.config.getoption("-k"):
        pytest.skip("takes minutes: -k ten_million")
    began = time.perf_counter()
    jobs, now = generate(tmp_path, SIZES[size])
    lines = [f"made in {time.perf_counter() - began:.0f} s"]
    with (
        Daemon(tmp_path) as collector,
        Producer(collector.endpoint, "bench") as producer,
        LogReader(collector.endpoint, 60.0) as reader,
    ):
        producer.hello()
        numbers = itertools.count(1)

        def seconds(name: str, number: int, table: str, *options: str, wanted: Callable[[dict[str, Any]], bool]) -> str:
            job = NewJob(producer, numbers, number, now + 100.0 * number)
            with daemon(name, collector.endpoint, tmp_path, *options) as at:
                job.run(assigned=name == "alerts")
                found: list[dict[str, Any]] = []

                def is_there() -> bool:
                    batch = reader.read(table, 0, job=job.name)
                    columns = {one: list(values) for one, values in batch.columns.items()}
                    found[:] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
                    return any(map(wanted, found))

                wait_until(is_there, f"{name} has written {table} of {job.name}", 1200.0, every=0.1)
                took = time.perf_counter() - at
            (one,) = (row for row in found if wanted(row))
            what = one.get("sentence") or one.get("how")
            return f"{took:8.1f} s{'' if took <= MAX_SECONDS else ' MISSED'}: {what:.60}"

        def is_final(row: dict[str, Any]) -> bool:
            return bool(row["final"])

        lines.append("alerts               " + seconds("alerts", jobs, "scores", wanted=is_final))
        lines.append("modeler              " + seconds("modeler", jobs + 1, "assignments", wanted=lambda row: True))
    show(f"{SIZES[size]:,} rows of blocks, {jobs:,} jobs", [*lines, json.dumps({"max seconds": MAX_SECONDS})])
