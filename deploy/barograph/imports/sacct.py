"""Runs from `sacct -P`: the numbered steps of each job, or the job where it has none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barograph.imports.mapping import BadMap, FieldColumns
from barograph.imports.record import Bad, Entry, Skipped, UnreadableLine, app_name
from barograph.imports.table import DONE, read_rows, record, restarts
from barograph_agent.job.identity import Job, clean

DEFAULTS: Final[dict[str, Sequence[str]]] = {
    "id": ["JobID", "JobIDRaw"],
    "app": ["JobName"],
    "cluster": ["Cluster"],
    "restart": ["Restarts"],
    "user": ["User"],
    "host": ["NodeList"],
    "ranks": ["NTasks", "NCPUS", "AllocCPUS"],
    "nodes": ["NNodes", "AllocNodes"],
    "seconds": ["ElapsedRaw", "Elapsed"],
    "start": ["Start"],
    "end": ["End"],
    "state": ["State"],
}
NEEDED: Final = ("id", "app", "ranks", "seconds", "state")
CORES: Final = {"ranks": ["NCPUS", "AllocCPUS"]}
"""What stands for ranks where there are no tasks: a job's own row has none."""
_ID: Final = re.compile(r"(\d+(?:_\d+|_\[[^]]*\])?(?:\+\d+)?)(?:\.(\w+))?")


class _Row(NamedTuple):
    line: int
    cells: Sequence[str]
    job: str
    step: str


def read_sacct(lines: Iterable[str], mapping: Mapping[str, str], cluster: str, app: str) -> Iterator[Entry]:
    """The runs in the output of `sacct -P`. cluster, app: of rows that do not name theirs. Raises BadMap.

    Where a job has numbered steps these are the runs, each with its tasks; batch and extern steps never are, and the
    job's own row is one only where the output has no numbered step of it. Its ranks are its cores then.
    """
    rows = read_rows(lines, "|")
    _, header = next(rows, (0, []))
    if isinstance(header, str) or not header:
        raise BadMap("the file has no line of column names, expected `sacct -P` without --noheader")
    account = _Account(header, mapping, cluster, app)
    for _, group in itertools.groupby(account.identified(rows), lambda one: one.job if isinstance(one, _Row) else ""):
        yield from account.entries(list(group))


class _Account:
    def __init__(self, header: Sequence[str], mapping: Mapping[str, str], cluster: str, app: str) -> None:
        self._columns = FieldColumns(header, mapping, DEFAULTS)
        self._cores = FieldColumns(header, mapping, DEFAULTS | CORES)
        self._cluster = cluster
        self._app = app
        for field in NEEDED:
            if field not in self._columns and not (field == "app" and app):
                raise BadMap(f"no column says {field}, expected {' or '.join(DEFAULTS[field])} in sacct's --format")

    def identified(self, rows: Iterable[tuple[int, list[str] | str]]) -> Iterator[_Row | Bad]:
        """Rows with their job and step."""
        for line, cells in rows:
            if isinstance(cells, str):
                yield Bad(line, cells)
            elif not self._columns.fits(cells):
                yield Bad(line, f"{len(cells)} cells, expected {self._columns.width} as in the first line")
            elif match := _ID.fullmatch(text := self._columns.get(cells, "id")):
                yield _Row(line, cells, match[1], match[2] or "")
            else:
                yield Bad(line, f"id is {text[:80]!r}, expected a job id of Slurm's such as 4711 or 4711.0")

    def entries(self, group: Sequence[_Row | Bad]) -> Iterator[Entry]:
        """What the rows of one job are."""
        stepped = any(one.step.isdecimal() for one in group if isinstance(one, _Row))
        own = next((one.cells for one in group if isinstance(one, _Row) and not one.step), None)
        for one in group:
            if isinstance(one, Bad):
                yield one
            elif one.step and not one.step.isdecimal():
                yield Skipped(one.line, f"{one.step} step")
            elif stepped and not one.step:
                yield Skipped(one.line, "job with steps")
            else:
                yield self._run(one, own or one.cells)

    def _run(self, row: _Row, own: Sequence[str]) -> Entry:
        """own: the row of the job, for what a step's row leaves empty."""
        cells, columns = row.cells, self._columns
        state = (columns.get(cells, "state").split() or ["no state"])[0].upper()
        if state not in DONE:
            return Skipped(row.line, state[:40])
        if not columns.get(cells, "seconds").strip("0:"):
            return Skipped(row.line, "COMPLETED within a second")
        try:
            job = Job(
                cluster=clean(columns.get(cells, "cluster"), self._cluster, 24),
                id=clean(row.job, "job"),
                restart=restarts(columns.get(cells, "restart")),
                step=row.step or "job",
                user=clean(columns.get(cells, "user") or columns.get(own, "user"), "unknown", 32),
                host=clean(columns.get(cells, "host"), "unknown", 64),
                app=app_name(columns.get(cells, "app") or self._app or columns.get(own, "app")),
                params=columns.params(cells),
            )
            return record(row.line, cells, columns if columns.get(cells, "ranks") else self._cores, job, job.id)
        except UnreadableLine as error:
            return Bad(row.line, str(error))
