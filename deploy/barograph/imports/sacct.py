"""Runs from `sacct -P`: the numbered steps of each job, or the job itself where it has none."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from barograph.imports.mapping import Dialect, FieldRow, read_rows
from barograph.imports.record import Bad, Entry, Skipped
from barograph.imports.table import entry, job_of
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
        "job_name": ["JobName"],
        "script": ["SubmitLine"],
        "requested_time": ["Timelimit"],
        "requested_memory": ["ReqMem"],
    },
    needed=("id", "app", "ranks", "seconds", "state"),
    header=", expected `sacct -P` without --noheader",
    missing="{columns} in sacct's --format",
)
_ID: Final = re.compile(r"(\d+(?:_\d+|_\[[^]]*\])?(?:\+\d+)?)(?:\.(\w+)(\+\d+)?)?")
_BY_JOB: Final = "SELECT line, job, cells, min(line) OVER (PARTITION BY job) AS first FROM rows ORDER BY first, line"


def read_sacct(lines: Iterable[str], mapping: Mapping[str, str], cluster: str, app: str) -> Iterator[Entry]:
    """The runs in the output of `sacct -P`. cluster, app: of rows that name none. Raises BadMap.

    The numbered steps of a job are runs, each with its tasks as ranks. Batch and extern steps are not, nor are the
    components of a heterogeneous step. The row of a job without numbered steps is a run with its cores as ranks. The
    rows of a job may be anywhere in the file: they are collected in a temporary database.
    """
    with contextlib.closing(sqlite3.connect("")) as rows:
        rows.execute("CREATE TABLE rows (line INTEGER, job TEXT, cells TEXT)")
        places: Mapping[str, Sequence[int]] = {}
        for row in read_rows(lines, SACCT, mapping, app):
            if not isinstance(row, FieldRow):
                yield row
            elif match := _ID.fullmatch(row.get("id")):
                places = row.places
                rows.execute("INSERT INTO rows VALUES (?, ?, ?)", (row.line, match[1], json.dumps(row.cells)))
            else:
                text = row.get("id")[:80]
                yield Bad(row.line, f"id is {text!r}, expected a job id of Slurm's such as 4711 or 4711.0")
        for _, group in itertools.groupby(rows.execute(_BY_JOB), lambda found: found[1]):
            yield from _entries(
                [FieldRow(line, json.loads(cells), places) for line, _, cells, _ in group], cluster, app
            )


def _entries(rows: Sequence[FieldRow], cluster: str, app: str) -> Iterator[Entry]:
    """The entries for the rows of one job."""
    matched = [(row, match) for row in rows if (match := _ID.fullmatch(row.get("id")))]
    stepped = any((match[2] or "").isdecimal() for _, match in matched)
    job = next((row for row, match in matched if not match[2]), None)
    for row, match in matched:
        if match[2] and not match[2].isdecimal():
            yield Skipped(row.line, f"{match[2]} step")
        elif match[3]:
            yield Skipped(row.line, "component of a heterogeneous step")
        elif stepped and not match[2]:
            yield Skipped(row.line, "job with steps")
        else:
            whole = job or row
            job_id, step = clean(match[1], "job"), match[2] or "job"
            make_job = functools.partial(job_of, row, whole, job_id, step, cluster, app)
            run = entry(row, _asked(whole), "no state", make_job)
            if not isinstance(run, Skipped) and not row.get("seconds").strip("0:"):
                run = Skipped(row.line, "COMPLETED within a second")
            yield run


def _asked(whole: FieldRow) -> dict[str, str]:
    """What the row of a whole job has of what was asked for. Options of the submit line vary from run to run."""
    asked = whole.asked()
    script = " ".join(word for word in asked.pop("script", "").split() if not word.startswith("-"))
    return asked | ({"script": script} if script else {})
