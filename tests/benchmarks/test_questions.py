"""How long questions take that a page asks of a log with a year of history, all but a week of it in the lake.

Rows are generated: per day as many jobs as rows, of 10,000 intervals each, each job in ten classes.
`make bench PYTEST="-k billion"` takes a billion rows, 9 GB and ten minutes to make them.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pytest

from barograph.report import application as application_report
from barograph.report import page as report_page
from barograph.views import queries
from barograph.views.collectors.joint_query import JointQuery, joined
from barograph.views.collectors.log_views import LogViews
from barograph.views.context import ViewContext
from barograph.views.log import BATCH
from barograph.views.modeler import ModelerClient
from barograph_agent.protocol import wire
from barograph_collector.lake.files import FORMAT, LakeFiles
from barograph_collector.query.sql import Querier
from barograph_collector.storage.days.archive import FileName, store_files
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.retention import DAY_SECONDS
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, stored
from barograph_collector.storage.store import LOG, Store
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadPlace, parse_params
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.serving.page import PredictPage
from helpers.clocks import calendar_at
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.log import collector_on
from helpers.printed import show

DAYS: Final = 365
HOT_DAYS: Final = 7
FIRST: Final = 20_000
JOB_ROWS: Final = 10_000
SIZES: Final = {
    "ten_thousand": (10_000, DAYS, HOT_DAYS),
    "ten_million": (10_000_000, DAYS, HOT_DAYS),
    "hundred_million": (100_000_000, DAYS, HOT_DAYS),
    "days_like_those_of_a_thousand_million": (21_840_000, 8, 3),
    "billion": (1_000_000_000, DAYS, HOT_DAYS),
}
"""Rows, the days that have them, and how many of these are in the database."""
ASKED: Final = 40
REPORTS: Final = 10
MAX_P99_SECONDS: Final = 0.3
MAX_PEAK_BYTES: Final = 1.5 * 2**30

# Of job `n` of all, its rows `k`: what the daily tables have of it.
GENERATED: Final = {
    "blocks": (1, "0 AS world, (k % 10)::UBIGINT AS class_id, k AS first_index, 1 AS count, s AS sum_seconds,"
               " s * s AS sum_squares, s * s * s AS sum_cubes, s AS min_seconds, s AS max_seconds, t AS ended_at"),
    "node_blocks": (20, "'node' || k % 4 AS host, 0 AS world, 16 AS ranks, k AS first_index, 20 AS length, 20 AS count,"
                    " k % 16 AS last_rank, 3 AS last_count, s AS late_seconds, 1 AS own_rank, s AS own_rank_seconds,"
                    " s AS own_seconds, s AS p2p_seconds, s AS wait_seconds, s AS least_wait_seconds, t AS ended_at"),
    "scores": (100, "'w' || n % 20 AS workload, if(n % 17 = 0 AND k > 9000, 'slow', 'normal') AS state, 0.5 AS score,"
               " 1.0 AS slowdown, t AS onset_at, t AS alarmed_at, k AS windows, 0 AS final, '' AS sentence, t AS at,"
               " 'none' AS cause, '[]' AS members, '{}' AS evidence, 'history' AS basis, 0.0 AS recovered_at,"
               " '[]' AS hosts"),
}  # fmt: skip
JOBS: Final = """
INSERT INTO jobs SELECT n + 1 AS log_offset, 'hpc/' || 1000000 + n || '.0.0' AS job, 'hpc' AS cluster,
    'w' || n % 20 AS workload, 'app' || n % 20 AS app, 'user' || n % 50 AS user, '{{"n":"' || n % 3 || '"}}' AS params,
    32 * (1 + n % 4) AS ranks, 2 AS nodes, 'head' AS host, {start} AS started_at, 'slurm' AS scheduler,
    '' AS account, '' AS unique_id FROM range({jobs}) t(n)"""
RUNS: Final = """
INSERT INTO runs SELECT n + 1 AS log_offset, 'hpc/' || 1000000 + n || '.0.0' AS job, {start} + 20000.0 AS ended_at,
    20000.0 + n % 100 AS runtime_seconds, 0 AS exit_status, {rows} AS intervals, 0 AS dropped, 0 AS imported
    FROM range({ended}) t(n)"""


def generate(root: Path, rows: int, total: int = DAYS, hot_days: int = HOT_DAYS) -> tuple[int, int]:
    """A log and the files of its lake; returns the number of jobs and of rows of each."""
    per_day = max(1, rows // total // JOB_ROWS)
    of_job = rows // total // per_day
    with Store(root / LOG, system=calendar_at(lambda: FIRST * DAY_SECONDS)) as store:
        name = store.database.name
    jobs = per_day * total
    start = f"({FIRST} + n // {per_day}) * 86400.0 + 3600.0"
    with duckdb.connect(root / LOG, config={"memory_limit": "1GB"}) as log:
        log.execute(JOBS.format(start=start, jobs=jobs))
        log.execute(RUNS.format(start=start, rows=of_job, ended=jobs - per_day))
        offset, files = jobs, []
        for day in range(FIRST, FIRST + total):
            first, hot = offset + 1, day >= FIRST + total - hot_days
            log.execute("INSERT INTO partitions VALUES (?, ?, true, ?)", [day, first, not hot])
            date = f"{np.datetime64(day, 'D')}"
            for table in DAILY:
                target = f"{table}_{date.replace('-', '')}"
                if table not in GENERATED:
                    if hot:
                        log.execute(f'CREATE TABLE "{target}" AS SELECT * FROM "{table}" WHERE false')
                    continue
                every, columns = GENERATED[table]
                casts = ", ".join(f'"{column}"::{kind} AS "{column}"' for column, kind in LOG_COLUMNS[table].items())
                source = (
                    f"SELECT {casts} FROM (SELECT row_number() OVER () + {offset} AS log_offset,"
                    f" 'hpc/' || 1000000 + n || '.0.0' AS job, {columns}"
                    f" FROM (SELECT n, k, 0.01 + 0.001 * random() AS s, {day} * 86400.0 + 3600.0 + k AS t"
                    f" FROM range({(day - FIRST) * per_day}, {(day - FIRST + 1) * per_day}) a(n),"
                    f" range(0, {of_job}, {every}) b(k)))"
                )
                if hot:
                    log.execute(f'CREATE TABLE "{target}" AS {source}')
                else:
                    data = DataPath(root / "lake")
                    sealed = FileName(table, day, name, first, offset + per_day * len(range(0, of_job, every)))
                    path = data.at(sealed.path)
                    Path(path).parent.mkdir(parents=True)
                    kept = ", ".join(stored(table, column) for column in LOG_COLUMNS[table])
                    kept = f"'{name}' AS collector, {kept}"
                    log.execute(f"COPY (SELECT {kept} FROM ({source}) ORDER BY job, log_offset) TO '{path}' ({FORMAT})")
                    files += LakeFiles(log, data, name).describe([sealed])
                offset += per_day * len(range(0, of_job, every))
        store_files(log, files)
        log.execute("INSERT INTO streams VALUES ('', 1, ?)", [offset])
        for table in DAILY:
            log.execute(f'DROP VIEW "{table}"')
    return jobs, of_job


def pages(job: int, now: float, per_day: int) -> dict[str, list[str]]:
    """The queries of a page, for one job."""
    started = (FIRST + job // per_day) * DAY_SECONDS + 3600.0
    row = {"job": f"hpc/{1000000 + job}.0.0", "started_at": started, "ended_at": started + 20_000.0}
    during = queries.during(row)
    app, params = f"app{job % 20}", f'{{"n":"{job % 3}"}}'
    # What the first question of a report has found.
    since, jobs = now - 30 * DAY_SECONDS, int(now // DAY_SECONDS - FIRST + 1) * per_day
    ends = {n: (FIRST + n // per_day) * DAY_SECONDS + 23_600.0 for n in range(job % 60, jobs, 60)}
    known = [
        {
            "job": f"hpc/{1000000 + n}.0.0",
            "ended_at": at,
            "runtime_seconds": 2e4,
            "exit_status": 0,
            "alarmed": not n % 17,
        }
        for n, at in ends.items()
        if since <= at < now
    ]
    of_report = queries.ProblemRuns(app, "hpc", params, since, known)
    return {
        "fleet": [queries.open_jobs(now).text, queries.reporting(now).text, queries.alarms(now).text],
        "job": [
            queries.job(row["job"]),
            queries.classes(during, 10),
            queries.trace(during, 3, 0.0, 1.0),
            queries.node_times(during, started + 5000.0),
            queries.late_nodes(during),
        ],
        "application": [
            queries.applications(None).text,
            queries.problems("hpc", app, None).text,
            queries.scales("hpc", app, params, None).text,
            queries.outcomes("hpc", app, None).text,
        ],
        "report": [
            of_report.classes().text,
            of_report.sizes([1, 2, 3]).text,
        ],
        "runs of a report": [
            queries.ended_runs(app, "hpc", now - 30 * DAY_SECONDS).text,
            of_report.alarms().text,
        ],
    }


def reported(root: Path, now: float, names: Iterable[int]) -> dict[str, list[tuple[float, float]]]:
    """Seconds and processor seconds of whole reports of 30 days and of questions to the modeler, by application."""
    found: dict[str, list[tuple[float, float]]] = {"whole report": [], "predict": []}
    forecaster = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0))
    page = PredictPage(forecaster, inline_features())
    with (
        collector_on(root / LOG, lake=DataPath(root / "lake")) as collector,
        LogViews(collector.endpoint, None, BATCH, lambda: now) as views,
    ):
        # Without a modeler, which has the forecasts of the other question.
        context = ViewContext(views, ModelerClient("http://127.0.0.1:9", lambda: now))
        query = (
            "SELECT app, params, ranks, nodes, list(runtime_seconds) AS seconds FROM jobs JOIN runs USING (job)"
            " GROUP BY ALL ORDER BY ALL"
        )
        for row in views.query(JointQuery(query, joined(lambda row: 0))).rows:
            application = Application("hpc", row["app"])
            params = tuple(sorted(parse_params(row["params"]).items()))
            name = f"{application}@{row['ranks']}:{row['params']}"
            place = WorkloadPlace(name, application, params, row["ranks"], row["nodes"])
            for seconds in row["seconds"]:
                forecaster.history.learn(place, seconds)
        forecaster.restore(forecaster.state())
        while forecaster.library.waiting:
            forecaster.step(0.0)
        for name in names:
            app = f"app{name % 20}"
            with timed(found["whole report"]):
                values = application_report.view(context, app, "hpc", {}, None, now - 30 * DAY_SECONDS)
                assert report_page.render("application.html", {**values, "away": []})
            with timed(found["predict"]):
                question = f"app={app}&param.n={name % 3}&ranks={32 * (1 + name % 4)}"
                asked = {"REQUEST_METHOD": "GET", "QUERY_STRING": question}
                answer = b"".join(page(asked, lambda *_: None))  # type: ignore[arg-type,return-value]
                assert b'"refusal": null' in answer, answer
    return found


@contextmanager
def timed(into: list[tuple[float, float]]) -> Iterator[None]:
    """Append the seconds of a block, and those of processors."""
    began, used = time.perf_counter(), time.process_time()
    yield
    into.append((time.perf_counter() - began, time.process_time() - used))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", SIZES)
def test_a_page_has_its_answer_at_every_size(size: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if size == "billion" and "billion" not in request.config.getoption("-k"):
        pytest.skip("takes ten minutes: -k billion")
    rows, days, hot_days = SIZES[size]
    began = time.perf_counter()
    jobs, of_job = generate(tmp_path, rows, days, hot_days)
    made = time.perf_counter() - began
    now = (FIRST + days - 1) * DAY_SECONDS + 3600.0 + of_job
    random = np.random.default_rng(1)
    seconds: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    slowest: dict[str, tuple[float, str]] = {}
    with Store(tmp_path / LOG, system=calendar_at(lambda: now), lake=DataPath(tmp_path / "lake")) as store:
        querier = Querier(store, lambda: True)
        for job in random.integers(0, jobs, ASKED).tolist():
            for page, texts in pages(job, now, jobs // days).items():
                began, used = time.perf_counter(), time.process_time()
                for text in texts:
                    at = time.perf_counter()
                    answer = querier.answer(wire.Sql(1, text, 20_000, 60.0))
                    slowest[page] = max(slowest.get(page, (0.0, "")), (time.perf_counter() - at, text))
                    assert (answer.error, answer.note) == ("", "")
                    may_be_empty = page in ("application", "report", "runs of a report") or "scores" in text
                    assert answer.rows or may_be_empty, text
                seconds.setdefault(page, []).append(time.perf_counter() - began)
                processor.setdefault(page, []).append(time.process_time() - used)
        parts = (tmp_path / "lake").rglob("*.parquet")
        sizes = {"log": (tmp_path / LOG).stat().st_size, "lake": sum(path.stat().st_size for path in parts)}
    for page, took in reported(tmp_path, now, range(REPORTS)).items():
        seconds[page], processor[page] = map(list, zip(*took, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    mib = {name: count / 2**20 for name, count in (*sizes.items(), ("memory", peak))}

    def at(quantile: float, of: list[float]) -> str:
        return f"{np.quantile(of, quantile) * 1e3:5.0f}"

    show(
        f"{rows:,} rows of blocks, {jobs:,} jobs, {days} days, all but {hot_days} in the lake; made in {made:.0f} s",
        [
            f"log {mib['log']:,.0f} MiB, lake {mib['lake']:,.0f} MiB, peak memory {mib['memory']:,.0f} MiB",
            *(
                f"{page:<18} p50 {at(0.5, took)} ms, p99 {at(0.99, took)} ms; processor {at(0.5, processor[page])} and"
                f" {at(0.99, processor[page])} ms"
                + (
                    f"; longest {slowest[page][0] * 1e3:.0f} ms: {' '.join(slowest[page][1].split())[:40]}"
                    if page in slowest
                    else ""
                )
                for page, took in seconds.items()
            ),
        ],
    )
    # Others' load does not count. A report is a file, which is written once.
    for page, took in processor.items():
        assert np.quantile(took, 0.99) <= MAX_P99_SECONDS or "report" in page, page
    assert peak <= MAX_PEAK_BYTES


def followed(store: Store, after: int, upto: int) -> tuple[int, float]:
    """Rows of a day, in rounds of three tables, and how many a second."""
    offsets = dict.fromkeys(GENERATED, after)
    began, rows = time.perf_counter(), 0
    while True:
        reached, tables = store.read_round(offsets, 10_000)
        if not tables or reached > upto:
            return rows, rows / (time.perf_counter() - began)
        rows += sum(len(columns["log_offset"]) for columns in tables.values())
        offsets = {table: max(offset, reached) for table, offset in offsets.items()}


def test_a_day_is_followed_in_the_lake_as_in_the_database(tmp_path: Path) -> None:
    generate(tmp_path, 8_000_000, total=4, hot_days=2)
    with Store(tmp_path / LOG, lake=DataPath(tmp_path / "lake")) as store:
        days = store.database.partitions.days
        (rows, lake), (same, database) = (
            followed(store, day.first_offset - 1, following.first_offset - 1)
            for day, following in ((days[1], days[2]), (days[2], days[3]))
        )
    show(
        f"{rows:,} rows of a day in rounds of three tables",
        [f"lake {lake:12,.0f} rows/s", f"database {database:8,.0f} rows/s"],
    )
    # The last round of a day has rows of the next one too, and is not counted.
    assert min(rows, same) > 2_000_000
    assert lake > database / 4
