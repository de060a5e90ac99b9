"""What back-tests read of the lake of a facility: runs, and series of intervals where these are computed."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from barograph.lab.columns import count, note
from barograph.views.queries import newest
from barograph_agent.settings.sources import ConfigError
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.layout import DAY, places_of
from barograph_collector.lake.place import Lake
from barograph_collector.settings import add_lake_options, named_lake
from barograph_collector.storage.connection import first_line
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.text import literal, parquet
from barograph_modeler.studies.bands.score import ScoreRow
from barograph_modeler.studies.bands.tasks import FEWEST
from barograph_modeler.studies.series import BadTable, Series

MAX_VALUES: Final = 10_000
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "1GB",
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
Score = Callable[[Sequence[Series]], Iterable[ScoreRow]]


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
    """A workload: its jobs, and the files with all of their blocks."""

    place: LakePlace
    workload: str
    jobs: Sequence[str]
    files: Sequence[str]
    most: int


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


def add_values(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits the intervals of a class."""
    most = "with --lake: the newest N single intervals of a class (default: %(default)s)"
    parser.add_argument("--values", type=count, default=MAX_VALUES, metavar="N", help=most)


@contextlib.contextmanager
def opened(options: argparse.Namespace) -> Iterator[Catalog]:
    """The catalog of the lake. Raises BadTable, also for what the block raises of LakeError."""
    try:
        lake = named_lake(options)
        assert lake is not None
        catalog = Catalog(lake, "backtest", Path(tempfile.gettempdir(), "barograph-backtest.tmp"))
        with contextlib.closing(catalog):
            catalog.check(1)
            yield catalog
    except (ConfigError, LakeError) as error:
        raise BadTable(str(error)) from None


def write_runs(options: argparse.Namespace, size: str | None, path: Path) -> None:
    """Write the runs of the lake that ended well on one rank or more to a CSV file, the newest last.

    Its columns are cluster, app, params, ranks, nodes and seconds. With the name of a parameter, `size` is its value,
    and `params` are the others; runs of which it is no number are left out. Raises BadTable for a lake without any run.
    """
    since, until = options.since or datetime.date.min, options.until or datetime.date.max
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


def parts(options: argparse.Namespace) -> list[WorkloadPart]:
    """The workloads of the lake, those that are alike beside each other. Raises BadTable for a lake without any."""
    credentials = options.lake_credentials and Path(options.lake_credentials)
    place = LakePlace(options.lake, options.state.absolute(), options.lake_endpoint or "", credentials)
    with opened(options) as catalog:
        files = _files(catalog, options)
        with catalog.reading():
            rows = catalog.connection.execute(
                "SELECT coalesce(a.workload, j.workload), j.job, j.started_at, max(r.ended_at)"
                ' FROM lake.jobs AS j LEFT JOIN (SELECT job, arg_max(workload, "offset") AS workload'
                " FROM lake.assignments GROUP BY job) AS a USING (job) JOIN lake.runs AS r USING (job)"
                " GROUP BY ALL ORDER BY 1, 3"
            ).fetchall()
    jobs: dict[str, list[str]] = {}
    days: dict[str, set[tuple[str, datetime.date]]] = {}
    for workload, job, started_at, ended_at in rows:
        jobs.setdefault(workload, []).append(job)
        days.setdefault(workload, set()).update((job.partition("/")[0], day) for day in _days(started_at, ended_at))
    found = [
        WorkloadPart(place, workload, names, [file for day in sorted(days[workload]) for file in files.get(day, ())],
                     options.values)
        for workload, names in jobs.items()
    ]  # fmt: skip
    if not (found := [one for one in found if one.files]):
        raise BadTable(f"{options.lake} has no blocks of ended runs on days that have ended, expected some")
    note(f"{len(found)} workloads with {sum(len(one.jobs) for one in found):,} runs")
    return found


def _days(since: float, until: float) -> Iterator[datetime.date]:
    """The days on which rows of a run may have been stored: clocks differ, and spools are delivered later."""
    first, last = (datetime.datetime.fromtimestamp(at, datetime.UTC).date() for at in (since, until))
    for number in range(-1, (last - first).days + 2):
        yield first + datetime.timedelta(days=number)


def _files(catalog: Catalog, options: argparse.Namespace) -> Mapping[tuple[str, datetime.date], list[str]]:
    """The files of `blocks` by cluster and day. Those of days that have ended are not merged any more."""
    found: dict[tuple[str, datetime.date], list[str]] = {}
    for table, path, _ in catalog.files():
        if table == "blocks":
            places = places_of(table, path.parent)
            key = places["cluster"], datetime.date.fromisoformat(places[DAY])
            found.setdefault(key, []).append(catalog.data.at(path))
    today = max((day for _, day in found), default=None)
    since, until = options.since or datetime.date.min, options.until or datetime.date.max
    return {key: files for key, files in found.items() if since <= key[1] <= until and key[1] != today}


def series_of(connection: duckdb.DuckDBPyConnection, part: WorkloadPart) -> list[Series]:
    """The newest single intervals of each class of a workload, in their order. Raises duckdb.Error."""
    connection.register("asked", pa.table({"job": list(part.jobs), "number": np.arange(len(part.jobs))}))
    try:
        rows = connection.execute(
            "SELECT class_id, list(sum_seconds ORDER BY number, world, first_index) FROM ("
            f"SELECT class_id, sum_seconds, number, world, first_index FROM {parquet(part.files)}"
            " JOIN asked USING (job) WHERE count = 1 AND sum_seconds > 0"
            f" AND job BETWEEN {literal(min(part.jobs))} AND {literal(max(part.jobs))}"
            " QUALIFY row_number() OVER (PARTITION BY class_id ORDER BY number DESC, world DESC, first_index DESC)"
            f" <= {part.most}) GROUP BY class_id ORDER BY class_id"
        ).fetchall()
    finally:
        connection.unregister("asked")
    return [
        Series({"workload": part.workload, "class": str(class_id)}, None, np.array(values))
        for class_id, values in rows
        if len(values) >= FEWEST
    ]


def scored(score: Score) -> Callable[[Sequence[WorkloadPart]], Iterator[ScoreRow]]:
    """A function of workloads, which reads their series and scores them. It may be sent to workers."""
    return partial(_scored, score)


def _scored(score: Score, workloads: Sequence[WorkloadPart]) -> Iterator[ScoreRow]:
    if not workloads:
        return
    try:
        with workloads[0].place.reader() as connection:
            for one in workloads:
                yield from score(series_of(connection, one))
    except duckdb.Error as error:
        raise BadTable(f"{workloads[0].place.place}: {first_line(error)}") from None
    except LakeError as error:
        raise BadTable(str(error)) from None
