"""Runs from `sacct -P`: the numbered steps of each job, or the job itself where it has none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barograph.imports.mapping import Dialect, FieldRow, read_rows
from barograph.imports.record import Bad, Entry, Skipped, UnreadableLine
from barograph.imports.table import DONE, job_of, record
from barograph_agent.job.identity import clean

SACCT: Final = Dialect(
    "|",
    {
        "id": ["JobID", "JobIDRaw"],
        "app": ["JobName"],
        "ranks": ["NTasks", "NCPUS", "AllocCPUS"],  # the row of a job has no tasks: its ranks are its cores
        "seconds": ["ElapsedRaw", "Elapsed"],
        "state": ["State"],
        "cluster": ["Cluster"],
        "restart": ["Restarts"],
        "user": ["User"],
        "host": ["NodeList"],
        "nodes": ["NNodes", "AllocNodes"],
        "start": ["Start"],
        "end": ["End"],
    },
    needed=("id", "app", "ranks", "seconds", "state"),
    header=", expected `sacct -P` without --noheader",
    missing="{columns} in sacct's --format",
)
_ID: Final = re.compile(r"(\d+(?:_\d+|_\[[^]]*\])?(?:\+\d+)?)(?:\.(\w+))?")


class _Line(NamedTuple):
    row: FieldRow
    job: str
    step: str


def read_sacct(lines: Iterable[str], mapping: Mapping[str, str], cluster: str, app: str) -> Iterator[Entry]:
    """The runs in the output of `sacct -P`. cluster, app: of rows that name none. Raises BadMap.

    The numbered steps of a job are runs, each with its tasks as ranks. Batch and extern steps are not. The row of a job
    without numbered steps is a run with its cores as ranks.
    """
    identified = map(_identified, read_rows(lines, SACCT, mapping, app))
    for _, group in itertools.groupby(identified, lambda one: one.job if isinstance(one, _Line) else ""):
        yield from _entries(list(group), cluster, app)


def _identified(row: FieldRow | Bad) -> _Line | Bad:
    if isinstance(row, Bad):
        return row
    text = row.get("id")
    if match := _ID.fullmatch(text):
        return _Line(row, match[1], match[2] or "")
    return Bad(row.line, f"id is {text[:80]!r}, expected a job id of Slurm's such as 4711 or 4711.0")


def _entries(group: Sequence[_Line | Bad], cluster: str, app: str) -> Iterator[Entry]:
    """The entries for the rows of one job."""
    lines = [one for one in group if isinstance(one, _Line)]
    stepped = any(one.step.isdecimal() for one in lines)
    whole = next((one.row for one in lines if not one.step), None)
    for one in group:
        if isinstance(one, Bad):
            yield one
        elif one.step and not one.step.isdecimal():
            yield Skipped(one.row.line, f"{one.step} step")
        elif stepped and not one.step:
            yield Skipped(one.row.line, "job with steps")
        else:
            yield _run(one, whole or one.row, cluster, app)


def _run(line: _Line, whole: FieldRow, cluster: str, app: str) -> Entry:
    row = line.row
    state = (row.get("state").split() or ["no state"])[0].upper()
    if state not in DONE:
        return Skipped(row.line, state[:40])
    if not row.get("seconds").strip("0:"):
        return Skipped(row.line, "COMPLETED within a second")
    try:
        return record(row, job_of(row, whole, clean(line.job, "job"), line.step or "job", cluster, app))
    except UnreadableLine as error:
        return Bad(row.line, str(error))
