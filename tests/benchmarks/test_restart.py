"""How long a restarted modeler and a restarted alerts daemon take until they judge a new job, at every size of history.

Rows are generated: jobs of 1,000 blocks over the last 10 days, of 200 workloads, with what agents and daemons write of
them. The first has not ended: its end was lost, or it runs still. The modeler begins without a snapshot, and then with
one of the whole log. `make bench PYTEST="-k restarted"` takes 1 and 3 million rows of blocks, and 3 million with all
days but two in the lake. `-k ten_million`, `-k ten_million_in_the_lake`, `-k many_jobs` (200,000 of 10 rows), and
`-k many_workloads` (as many, each of a workload of its own) take minutes.

Beside the time that passes is printed what of it daemon and collector took of processors, and how long their threads
were ready to run and had none: the rest of a busy machine.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import pytest

from barograph_agent.protocol.tables import TABLES
from barograph_alerts.processor import Scorer
from barograph_collector.client.log_reader import LogReader
from barograph_collector.lake.place import Lake
from barograph_collector.storage.days.retention import DAY_SECONDS, Retention
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS
from barograph_collector.storage.store import LOG, Store
from barograph_collector.storage.text import literal
from barograph_lab.bench.measured_collector import Usage
from barograph_modeler.learning.learner import Learner
from helpers.clocks import calendar_at
from helpers.jobs import Simulation
from helpers.lakes import seal_all
from helpers.log import Daemon, Producer, wait_until
from helpers.printed import show

DAYS: Final = 10
FIRST: Final = int(time.time() // DAY_SECONDS) - DAYS
"""The day of the first job. Jobs of more than a month ago are given up."""
INTERVALS: Final = 16_000
"""Of a job."""
STRIDE: Final = 2_000
"""Offsets of a job."""
MARKED: Final = 250
"""Jobs of a commit."""


class History(NamedTuple):
    """The jobs of a log. blocks: rows of each. in_lake: whether all days but the last two are."""

    jobs: int
    blocks: int = 1_000
    workloads: int = 200
    in_lake: bool = False


HISTORIES: Final = {
    "one_million": History(1_000),
    "three_million": History(3_000),
    "three_million_in_the_lake": History(3_000, in_lake=True),
    "ten_million": History(10_000),
    "ten_million_in_the_lake": History(10_000, in_lake=True),
    "many_jobs": History(200_000, 10),
    "many_workloads": History(200_000, 10, 200_000),
}
MINUTES: Final = {"ten_million", "ten_million_in_the_lake", "many_jobs", "many_workloads"}
"""Taken only when they are named."""
LAKE: Final = "lake"
MAX_SECONDS: Final = 10.0
"""From the start of a daemon until it has judged a new job; printed, and not asserted: it is wall-clock time."""
JOB, WORKLOAD, BEGAN, ENDED = "'hpc/' || n || '.0.0'", "'hpc/app' || w || '@2x1'", "began", "began + 40"
OF_JOB: Final[Mapping[str, Mapping[str, Any]]] = {
    "jobs": {
        "app": "'app' || w", "cluster": "'hpc'", "user": "'u'", "params": "'{}'", "ranks": 2,
        "nodes": 2, "host": "'n0'", "started_at": BEGAN, "scheduler": "'slurm'",
    },
    "works": {
        "executable": "md5('app' || w)", "program": "md5('app' || w)", "words": "'[]'",
        "inputs": "'[]'", "ranks": 2, "nodes": 2, "ranks_per_node": 1, "threads": 1, "plain": "''",
    },
    "assignments": {"family": WORKLOAD, "how": "'same'", "reason": "'asked for the same'", "time": "began + 2"},
    "runs": {"ended_at": ENDED, "runtime_seconds": 40.0, "intervals": INTERVALS},
}  # fmt: skip
"""Columns of the rows that a job has once, as SQL of its number `n`, its `began` and the number `w` of its workload;
without those that are 0 or empty, `job` and `workload`."""


def learned() -> dict[str, list[dict[str, Any]]]:
    """Rows that daemons write about one run, by table, with each column's value."""
    simulation, learner, scorer = Simulation(intervals=INTERVALS), Learner(refit_seconds=9.0), Scorer()
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


def generate(root: Path, history: History) -> float:
    """A log; returns the time of its end. Job 0 has not ended."""
    jobs, blocks, count = history.jobs, history.blocks, INTERVALS // history.blocks
    with Store(root / LOG, system=calendar_at(lambda: FIRST * DAY_SECONDS)):
        pass
    templates = learned()
    with duckdb.connect(root / LOG, config={"memory_limit": "2GB"}) as log:
        for table in DAILY:
            log.execute(f'DROP VIEW "{table}"')
        log.execute("DELETE FROM partitions")
        of_day = -(-jobs // DAYS)
        began = f"{FIRST * DAY_SECONDS} + n * {DAY_SECONDS / of_day}"
        known = f"n, n % {history.workloads} AS w, {began} AS began"
        for table, columns in OF_JOB.items():
            ended = " WHERE n > 0" if table == "runs" else ""
            _insert(log, table, table, columns, 1 + list(OF_JOB).index(table) + (1500 if ended else 0),
                    f"(SELECT {known} FROM range({jobs}) t(n){ended})")  # fmt: skip
        for table in ("bands", "paces"):
            for number, row in enumerate(templates[table]):
                constant = {name: _sql(value) for name, value in row.items()} | {"fitted_at": ENDED}
                _insert(log, table, table, constant, 1600 + 100 * (table == "paces") + number,
                        f"(SELECT {known} FROM range({jobs}) t(n))")  # fmt: skip
            # A table is read in the order of insertion.
            log.execute(f'CREATE TEMP TABLE "sorted" AS SELECT * FROM "{table}" ORDER BY log_offset')
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
            source = f"(SELECT {known} FROM range({first}, {last}) t(n))"
            (score,) = (row for row in templates["scores"] if row["final"])
            constant = {name: _sql(value) for name, value in score.items()} | {"time": ENDED}
            _insert(log, "scores", f"scores_{date}", constant, 1900, source.replace(" t(n)", " t(n) WHERE n > 0"))
            seconds = f"if(k % 2 = 0, 0.004, 0.001) * {count} * (0.98 + 0.04 * random())"
            _insert(log, "blocks", f"blocks_{date}",
                    {"class_id": "11 + 11 * (k % 2)", "first_index": f"k * {count}", "count": count, "sum_seconds": "s",
                     "sum_squares": f"s * s / {count}", "sum_cubes": f"s * s * s / {count**2}",
                     "min_seconds": f"s / {count}", "max_seconds": f"s / {count}",
                     "ended_at": f"began + 40.0 * k / {blocks}"}, "100 + k",
                    f"(SELECT *, {seconds} AS s FROM {source}, range({blocks}) b(k) ORDER BY n, k)")  # fmt: skip
            _insert(log, "node_blocks", f"node_blocks_{date}",
                    {"host": "'n' || k % 2", "ranks": 1, "first_index": "k // 2 * 16", "length": 16, "count": 16,
                     "last_rank": "k % 2", "last_count": 8, "own_rank": "k % 2", "own_rank_seconds": 0.6,
                     "own_seconds": 0.6, "wait_seconds": 0.01, "ended_at": f"began + 40.0 * k / {max(blocks // 8, 1)}"},
                    "1100 + k",
                    f"(SELECT * FROM {source}, range({max(blocks // 8, 1)}) b(k) ORDER BY n, k)")  # fmt: skip
    with Store(root / LOG, system=calendar_at(lambda: (FIRST + DAYS) * DAY_SECONDS)):
        pass
    # A period of the lake ends where a commit has ended.
    ends = {*range(MARKED, jobs, MARKED), *range(of_day, jobs, of_day), jobs}
    rows = [("history", number, end * STRIDE) for number, end in enumerate(sorted(ends), 1)]
    with duckdb.connect(root / LOG) as log:
        log.executemany("INSERT INTO streams VALUES (?, ?, ?)", [*rows, ("", 1, jobs * STRIDE)])
    return (FIRST + DAYS) * DAY_SECONDS + 1.0


def publish(root: Path) -> None:
    """Let all days but the last two be in the lake only."""
    with Store(
        root / LOG, system=calendar_at(lambda: (FIRST + DAYS) * DAY_SECONDS), lake=Lake.at(root / LAKE).data
    ) as store:
        seal_all(store, Lake.at(root / LAKE), retention=Retention(hot_days=1))
        archived = sum(day.archived for day in store.database.partitions.days)
    assert archived == DAYS - 2, archived


def _insert(
    log: duckdb.DuckDBPyConnection, table: str, target: str, columns: Mapping[str, Any], at: Any, source: str
) -> None:
    """Rows of a table, with an offset of `at` behind the first of its job."""
    offset = f"(n * {STRIDE} + {at})::BIGINT AS log_offset"
    log.execute(f'INSERT INTO "{target}" BY NAME SELECT {offset}, {_values(table, columns)} FROM {source}')


def _values(table: str, columns: Mapping[str, Any]) -> str:
    """All columns but the offset, as SQL."""
    given = dict(columns) | {"job": JOB, "workload": WORKLOAD}
    values = []
    for name, kind in LOG_COLUMNS[table].items():
        if name != "log_offset":
            default = TABLES[table].defaults.get(name, "" if kind == "VARCHAR" else 0)
            values.append(f'({given.get(name, _sql(default))})::{kind} AS "{name}"')
    return ", ".join(values)


def _sql(value: Any) -> str:
    return literal(str(value))


class Share(NamedTuple):
    """What a process has had of the machine, in seconds. ready: of all threads, ready to run and without a core."""

    processor: float = 0.0
    ready: float = 0.0

    @classmethod
    def of(cls, pid: int) -> Share:
        """That of a process that runs."""
        delays = 0
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # it has ended
                delays += int((thread / "schedstat").read_text().split()[1])
        return cls(Usage.of(pid).cpu_seconds, delays / 1e9)


@contextmanager
def daemon(name: str, endpoint: str, directory: Path, *options: str) -> Iterator[tuple[float, int]]:
    """`barograph modeler` or `alerts` as a process; the time of its start by `time.perf_counter`, and its number."""
    command = [sys.executable, "-m", f"barograph_{name}.main", "--collector", endpoint, "--metrics", "127.0.0.1:0"]
    with (directory / f"{name}.log").open("ab") as log:
        began = time.perf_counter()
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
        try:
            yield began, process.pid
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

    def __init__(
        self, producer: Producer, numbers: Iterator[int], number: int, workload: int, blocks: int, now: float
    ) -> None:
        """numbers: of messages. workload: its number, of the history's. blocks: its rows."""
        self.name = f"hpc/{number}.0.0"
        self._producer, self._numbers, self._number, self._now = producer, numbers, number, now
        self._workload, self._rows = workload, blocks

    def run(self, *, assigned: bool) -> None:
        """Append its rows. assigned: whether the modeler has found its group."""
        with duckdb.connect() as engine:
            for table, columns in OF_JOB.items():
                if table == "assignments" and not assigned:
                    continue
                if table == "runs":
                    self._append("blocks", self._rows, self._blocks())
                source = f"(SELECT {self._number} AS n, {self._workload} AS w, {self._now} AS began)"
                found = engine.sql(f"SELECT {_values(table, columns)} FROM {source}")
                (row,) = found.fetchall()
                self._append(table, 1, {name: [value] if isinstance(value, str) else value
                                        for name, value in zip(found.columns, row, strict=True)})  # fmt: skip

    def _blocks(self) -> dict[str, Any]:
        """Twice as slow as the history."""
        rng, count = np.random.default_rng(self._number), INTERVALS // self._rows
        k = np.arange(self._rows)
        each = np.where(k % 2 == 0, 0.008, 0.002) * rng.uniform(0.98, 1.02, self._rows)
        return {
            "job": self.name, "world": 0, "class_id": (11 + 11 * (k % 2)).astype(np.uint64), "first_index": k * count,
            "count": count, "sum_seconds": each * count, "sum_squares": each**2 * count, "sum_cubes": each**3 * count,
            "min_seconds": each, "max_seconds": each, "ended_at": self._now + np.cumsum(each) * count,
        }  # fmt: skip

    def _append(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        number = next(self._numbers)
        self._producer.append(number, table, rows, columns)
        self._producer.receive_ack(number)


def runs_learned(log: Path) -> float:
    """How many runs a modeler has learned, by its metrics; 0 while it does not answer. log: its output."""
    *_, url = re.findall(r"metrics on (http\S+?)[;,\s]", log.read_text())
    try:
        with urllib.request.urlopen(url, timeout=60.0) as reply:
            found = re.findall(r"^barograph_modeler_runs_total\S* (\S+)$", reply.read().decode(), re.MULTILINE)
    except OSError:
        return 0.0
    return sum(map(float, found))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", HISTORIES)
def test_restarted_daemons_judge_a_new_job(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if name in MINUTES and name not in request.config.getoption("-k"):
        pytest.skip(f"takes minutes: -k {name}")
    history = HISTORIES[name]
    began = time.perf_counter()
    now = generate(tmp_path, history)
    if history.in_lake:
        publish(tmp_path)
    lines = [f"made in {time.perf_counter() - began:.0f} s"]
    with (
        Daemon(tmp_path, *([f"--lake={tmp_path / LAKE}"] if history.in_lake else [])) as collector,
        Producer(collector.endpoint, "bench") as producer,
        LogReader(collector.endpoint, 60.0) as reader,
    ):
        producer.hello()
        numbers, jobs = itertools.count(1), itertools.count(history.jobs)

        def seconds(program: str, table: str, *options: str, wanted: Callable[[dict[str, Any]], bool]) -> str:
            number = next(jobs)
            job = NewJob(
                producer, numbers, number, number % history.workloads, history.blocks, now + number - history.jobs
            )
            before = Share.of(collector.process.pid)
            with daemon(program, collector.endpoint, tmp_path, *options) as (at, pid):
                job.run(assigned=program == "alerts")
                found: list[dict[str, Any]] = []

                def is_there() -> bool:
                    batch = reader.read(table, 0, job=job.name)
                    columns = {one: list(values) for one, values in batch.columns.items()}
                    found[:] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
                    return any(map(wanted, found))

                wait_until(is_there, f"{program} has written {table} of {job.name}", 1200.0, every=0.1)
                took = time.perf_counter() - at
                own, of_collector = Share.of(pid), Share.of(collector.process.pid)
            (one,) = (row for row in found if wanted(row))
            what = one.get("sentence") or one.get("how")
            spent = of_collector.processor - before.processor
            waited = own.ready + of_collector.ready - before.ready
            shares = f"{own.processor:.1f} s processor time, collector {spent:.1f} s, {waited:.1f} s without a core"
            return f"{took:8.1f} s{'' if took <= MAX_SECONDS else ' MISSED'} ({shares}): {what:.40}"

        def is_final(row: dict[str, Any]) -> bool:
            return bool(row["final"])

        def is_any(row: dict[str, Any]) -> bool:
            return True

        def note(line: str) -> None:
            print(line, flush=True)
            lines.append(line)

        note("alerts                   " + seconds("alerts", "scores", wanted=is_final))
        note("modeler                  " + seconds("modeler", "assignments", wanted=is_any))
        began, state = time.perf_counter(), f"--state={tmp_path / 'modeler'}"
        with daemon("modeler", collector.endpoint, tmp_path, state):
            log = tmp_path / "modeler.log"
            wait_until(lambda: runs_learned(log) >= history.jobs - 1, "all runs are learned", 1800.0, every=1.0)
        note(f"a snapshot of all made in {time.perf_counter() - began:.0f} s")
        note("modeler, with a snapshot " + seconds("modeler", "assignments", state, wanted=is_any))
    show(f"{name}: {history.jobs * history.blocks:,} rows of blocks, {history.jobs:,} jobs, "
         f"{history.workloads:,} workloads", [*lines, json.dumps({"max seconds": MAX_SECONDS})])  # fmt: skip
