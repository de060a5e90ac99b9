"""What back-tests read of the lake of a facility: runs, and series of intervals where these are computed."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barograph.views.queries import ALARMED, newest
from barograph_agent.settings.sources import ConfigError
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.place import Lake
from barograph_collector.settings import add_lake_options, named_lake
from barograph_collector.storage.connection import reason_of
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.text import literal, parquet
from barograph_lab.columns import count, note
from barograph_lab.studies.alerts.pairs import MeasuredRun
from barograph_lab.studies.bands.tasks import FEWEST
from barograph_lab.studies.series import BadTable, Series
from barograph_modeler.maxima.sample import Floats

MAX_VALUES: Final = 10_000
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "1GB",
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
Read = TypeVar("Read")
Row = TypeVar("Row")


class LakePlace(NamedTuple):
    """Where a lake is, as `Lake.find` has it: what a worker needs to read its files. Credentials are the worker's."""

    place: str
    state: Path
    endpoint: str
    credentials: Path | None

    def reader(self) -> duckdb.DuckDBPyConnection:
        """A connection that reads files of the lake. Raises LakeError."""
        data = Lake.find(self.place, self.state, "", self.endpoint, self.credentials).data
        connection = duckdb.connect(config=_CONFIG)
        data.load(connection)
        data.authorize(connection)
        return connection


class WorkloadPart(NamedTuple):
    """A workload: its jobs in the order of their begin, and the files with all of their blocks.

    most: values that are wanted of a class, or of a run. disturbed: those of the jobs that have alarmed.
    """

    place: LakePlace
    workload: str
    jobs: Sequence[str]
    files: Sequence[str]
    most: int
    disturbed: frozenset[str] = frozenset()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a lake and its days."""
    add = parser.add_argument
    add_lake_options(parser)
    add("--state", type=Path, default=Path(), metavar="DIR",
        help="with a lake in an object store without --catalog: the collector's state directory")  # fmt: skip
    date = datetime.date.fromisoformat
    add("--since", type=date, metavar="DATE", help="with --lake: the first day (default: of the lake)")
    add(
        "--until", type=date, metavar="DATE", help="with --lake: the last day, which has ended (default: the last such)"
    )


def days(options: argparse.Namespace) -> tuple[datetime.date, datetime.date]:
    """The first and the last day that `add_options` has been given."""
    return options.since or datetime.date.min, options.until or datetime.date.max


def add_values(parser: argparse.ArgumentParser, most: str) -> None:
    """Add the option that limits the values of a workload's part. most: which N there are at most."""
    help = f"with --lake: {most} (default: %(default)s)"
    parser.add_argument("--values", type=count, default=MAX_VALUES, metavar="N", help=help)


@contextlib.contextmanager
def opened(options: argparse.Namespace) -> Iterator[Catalog]:
    """The catalog of the lake. Raises BadTable, also for what the block raises of LakeError."""
    try:
        lake = named_lake(options)
        assert lake is not None
        lake.data.check(known=True)
        catalog = Catalog(lake, Path(tempfile.gettempdir(), "barograph-backtest.tmp"))
        with contextlib.closing(catalog):
            yield catalog
    except (ConfigError, LakeError) as error:
        raise BadTable(str(error)) from None


def write_runs(options: argparse.Namespace, size: str | None, path: Path) -> None:
    """Write the runs of the lake that ended well on one rank or more to a CSV file, the newest last.

    Its columns are cluster, app, params, ranks, nodes and seconds. With the name of a parameter, `size` is its value,
    and `params` are the others; runs of which it is no number are left out. Raises BadTable for a lake without any run.
    """
    since, until = days(options)
    params, value = "params", "1"
    if size is not None:
        known, key = "if(json_valid(params), params, '{}')", literal(f'$."{size}"')
        params = f"json_merge_patch({known}, json_object({literal(size)}, NULL))"
        value = f"TRY_CAST(json_extract_string({known}, {key}) AS DOUBLE)"
    query = f"""
SELECT cluster, app, {params} AS params, ranks, nullif(nodes, 0) AS nodes, runtime_seconds AS seconds, {value} AS size
FROM (SELECT job, cluster, app, params, ranks, nodes FROM lake.jobs {newest("job")})
JOIN (SELECT job, exit_status, runtime_seconds, ended_at FROM lake.runs {newest("job")}) USING (job)
WHERE exit_status = 0 AND ranks > 0 AND runtime_seconds > 0 AND size IS NOT NULL
    AND (ended_at = 0 OR to_timestamp(ended_at)::DATE BETWEEN '{since}' AND '{until}')
ORDER BY ended_at, job"""
    with opened(options) as catalog, catalog.reading():
        found = catalog.connection.execute(f"COPY ({query}) TO {literal(str(path))} (HEADER)").fetchone()
    if not found or not found[0]:
        of = f" with a number {size!r} among its parameters" if size is not None else ""
        raise BadTable(f"{options.lake} has no run{of} that ended well in that time, expected some")
    note(f"{found[0]:,} runs")


def parts(options: argparse.Namespace, newest_runs: int | None = None) -> list[WorkloadPart]:
    """The workloads of the lake, those that are alike beside each other. Raises BadTable for a lake without any.

    newest_runs: of each workload at most so many, of jobs that have ended well, or have alarmed; by default all.
    """
    credentials = options.lake_credentials and Path(options.lake_credentials)
    place = LakePlace(options.lake, options.state.absolute(), options.lake_endpoint or "", credentials)
    with opened(options) as catalog:
        files = _files(catalog, options)
        with catalog.reading():
            rows = catalog.connection.execute(_JOBS if newest_runs is None else _newest_jobs(newest_runs)).fetchall()
    jobs: dict[str, list[str]] = {}
    ran_on: dict[str, set[datetime.date]] = {}
    disturbed: dict[str, set[str]] = {}
    for workload, job, started_at, ended_at, alarmed in rows:
        jobs.setdefault(workload, []).append(job)
        ran_on.setdefault(workload, set()).update(_days(started_at, ended_at))
        disturbed.setdefault(workload, set()).update([job] if alarmed else ())
    found = [
        WorkloadPart(place, workload, names, [file for day in sorted(ran_on[workload]) for file in files.get(day, ())],
                     options.values, frozenset(disturbed[workload]))
        for workload, names in jobs.items()
    ]  # fmt: skip
    if not (found := [one for one in found if one.files]):
        raise BadTable(f"{options.lake} has no blocks of ended runs on days that have ended, expected some")
    note(f"{len(found)} workloads with {sum(len(one.jobs) for one in found):,} runs")
    return found


_JOBS: Final = (
    "SELECT coalesce(a.workload, j.workload) AS workload, j.job, j.started_at, max(r.ended_at) AS ended_at, false"
    " FROM lake.jobs AS j LEFT JOIN (SELECT job, arg_max(workload, log_offset) AS workload"
    " FROM lake.assignments GROUP BY job) AS a USING (job) JOIN lake.runs AS r USING (job)"
    " GROUP BY ALL ORDER BY 1, 3"
)
"""The ended jobs: workload, job, begin, end, and whether it has alarmed, which is not asked here."""


def _newest_jobs(most: int) -> str:
    """The same of the newest jobs of each workload that ended well or have alarmed, with whether they have."""
    return f"""
SELECT workload, job, started_at, ended_at, alarmed FROM (
    SELECT found.workload, found.job, found.started_at, found.ended_at, a.job IS NOT NULL AS alarmed
    FROM ({_JOBS}) AS found
    JOIN (SELECT job, exit_status FROM lake.runs {newest("job")}) AS r USING (job)
    LEFT JOIN (SELECT DISTINCT job FROM lake.scores WHERE {ALARMED}) AS a USING (job)
    WHERE r.exit_status = 0 OR a.job IS NOT NULL
) QUALIFY row_number() OVER (PARTITION BY workload ORDER BY started_at DESC, job DESC) <= {most}
ORDER BY workload, started_at, job"""


def _days(since: float, until: float) -> Iterator[datetime.date]:
    """The days on which rows of a run may have been stored: clocks differ, and spools are delivered later."""
    first, last = (datetime.datetime.fromtimestamp(at, datetime.UTC).date() for at in (since, until))
    for number in range(-1, (last - first).days + 2):
        yield first + datetime.timedelta(days=number)


def _files(catalog: Catalog, options: argparse.Namespace) -> Mapping[datetime.date, list[str]]:
    """The files of `blocks` by day, of days that have ended."""
    found: dict[datetime.date, list[str]] = {}
    for name in catalog.files():
        if name.table == "blocks":
            found.setdefault(EPOCH + datetime.timedelta(days=name.day), []).append(catalog.data.at(name.path))
    today = max(found, default=None)
    since, until = days(options)
    return {day: files for day, files in found.items() if since <= day <= until and day != today}


def series_of(connection: duckdb.DuckDBPyConnection, part: WorkloadPart) -> list[Series]:
    """The newest single intervals of each class of a workload, in their order. Raises duckdb.Error."""
    rows = _asked(
        connection,
        part,
        "SELECT class_id, list(sum_seconds ORDER BY number, world, first_index) FROM ("
        "SELECT class_id, sum_seconds, number, world, first_index FROM blocks WHERE count = 1 AND sum_seconds > 0"
        " QUALIFY row_number() OVER (PARTITION BY class_id ORDER BY number DESC, world DESC, first_index DESC)"
        f" <= {part.most}) GROUP BY class_id ORDER BY class_id",
    )
    return [
        Series({"workload": part.workload, "class": str(class_id)}, None, np.array(values))
        for class_id, values in rows
        if len(values) >= FEWEST
    ]


def runs_of(connection: duckdb.DuckDBPyConnection, part: WorkloadPart) -> list[MeasuredRun]:
    """The runs of a workload, in the order of their begin, each with the times of its intervals in the largest world.

    Intervals of a block have its mean. Of more than `most` intervals as many are added up as it takes.
    Raises duckdb.Error.
    """
    rows = _asked(
        connection,
        part,
        "SELECT number, list(count ORDER BY first_index), list(sum_seconds ORDER BY first_index)"
        " FROM blocks WHERE sum_seconds > 0 GROUP BY number, world"
        " QUALIFY row_number() OVER (PARTITION BY number ORDER BY sum(count) DESC, world) = 1 ORDER BY number",
    )
    return [
        MeasuredRun(part.workload, job, times(np.array(counts), np.array(seconds), part.most), job in part.disturbed)
        for number, counts, seconds in rows
        for job in [part.jobs[number]]
    ]


def times(counts: npt.NDArray[np.int64], seconds: Floats, most: int) -> Floats:
    """The times of at most `most` equal parts of a run, from the number of intervals and the seconds of its blocks.

    A part is an interval where the run has no more than `most`. A rest of a part at the end is left out.

    >>> times(np.array([1, 2, 2]), np.array([1.0, 4.0, 6.0]), 10)
    array([1., 2., 2., 3., 3.])
    >>> times(np.array([1, 2, 2]), np.array([1.0, 4.0, 6.0]), 2)
    array([5.])
    """
    intervals = int(counts.sum())
    if intervals <= most:
        return np.repeat(seconds / counts, counts)
    ends, elapsed = np.append(0, np.cumsum(counts)), np.append(0.0, np.cumsum(seconds))
    size = -(-intervals // most)
    found: Floats = np.diff(np.interp(np.arange(0, intervals + 1, size), ends, elapsed))
    return found


def _asked(connection: duckdb.DuckDBPyConnection, part: WorkloadPart, query: str) -> list[Any]:
    """The rows of a query of `blocks`, which are those of a workload, with the `number` of each job among its own."""
    connection.register("asked", pa.table({"job": list(part.jobs), "number": np.arange(len(part.jobs))}))
    blocks = (
        f"SELECT * FROM {parquet(part.files)} JOIN asked USING (job)"
        f" WHERE job BETWEEN {literal(min(part.jobs))} AND {literal(max(part.jobs))}"
    )
    try:
        return connection.execute(f"WITH blocks AS ({blocks}) {query}").fetchall()
    finally:
        connection.unregister("asked")


def computed(
    read: Callable[[duckdb.DuckDBPyConnection, WorkloadPart], Read], compute: Callable[[Read], Iterable[Row]]
) -> Callable[[Sequence[WorkloadPart]], Iterator[Row]]:
    """A function of workloads, which reads what is wanted of each, and computes rows. It may be sent to workers.

    read, compute: functions of a module, or `partial` of such.
    """
    return partial(_computed, read, compute)


def _computed(
    read: Callable[[duckdb.DuckDBPyConnection, WorkloadPart], Read],
    compute: Callable[[Read], Iterable[Row]],
    workloads: Sequence[WorkloadPart],
) -> Iterator[Row]:
    if not workloads:
        return
    try:
        with workloads[0].place.reader() as connection:
            for one in workloads:
                yield from compute(read(connection, one))
    except duckdb.Error as error:
        raise BadTable(f"{workloads[0].place.place}: {reason_of(error)}") from None
    except LakeError as error:
        raise BadTable(str(error)) from None
