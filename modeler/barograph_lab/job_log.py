"""Jobs of a log in the Standard Workload Format, with what their scheduler had of them at submission, or of a lake."""

from __future__ import annotations

import argparse
import gzip
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.progress import Progress

from barograph.imports.record import UnreadableLine
from barograph.imports.source import opened
from barograph.imports.swf import fields
from barograph.views.queries import newest
from barograph_lab import history
from barograph_lab.studies.limits import UNKNOWN, LoggedJob
from barograph_lab.studies.series import BadTable

FAILED: Final = (0, 5)
"""Status of jobs that failed or were cancelled."""
PARTS: Final = (2, 3, 4)
"""Status of lines about a part of a job, which has a line of its own."""
MIN_JOBS: Final = 2


def read_jobs(file: Path, progress: Progress) -> tuple[list[LoggedJob], Counter[str]]:
    """The jobs that ran, cancelled ones included, as in the log, and how many others there are, by reason.

    Raises BadTable with file, line and value for what is no log, and OSError.
    """
    jobs: list[LoggedJob] = []
    skipped: Counter[str] = Counter()
    try:
        with opened(str(file), progress) as lines:
            for line, text in enumerate(lines, 1):
                if not text.strip() or text.lstrip().startswith(";"):
                    continue
                try:
                    job = _job([float(value) for value in fields(text)])
                except UnreadableLine as error:
                    raise BadTable(f"{file}:{line}: {error}") from None
                if isinstance(job, str):
                    skipped[job] += 1
                else:
                    jobs.append(job)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadTable(f"{file}: {error}, expected a whole gzip file") from error
    if len(jobs) < MIN_JOBS:
        raise BadTable(f"{file}: {len(jobs)} jobs that ran, expected at least {MIN_JOBS} in Standard Workload Format")
    return jobs, skipped


def _job(values: Sequence[float]) -> LoggedJob | str:
    """The job of a line, or why it is skipped. Raises UnreadableLine."""
    submitted, waited, runtime, allocated = values[1:5]
    processors, requested, memory, status, user, _, executable = values[7:14]
    if status in PARTS:
        return "lines about parts of jobs"
    if runtime <= 0:
        return "jobs without runtime"
    if submitted < 0:
        raise UnreadableLine(f"field 2 is '{submitted:g}', expected the submission in seconds from 0")
    return LoggedJob(
        submitted,
        submitted + max(waited, 0.0),
        runtime,
        status in FAILED,
        processors=next((one for one in (processors, allocated) if one > 0), UNKNOWN),
        requested=requested if requested > 0 else UNKNOWN,
        user=int(user),
        executable=int(executable),
        memory=memory,
    )


_STEPS: Final = """
SELECT cluster, job, app, "user", ranks, started_at, coalesce(ended_at, 0) AS ended_at, runtime_seconds,
    exit_status
FROM (SELECT job, cluster, app, "user", ranks, started_at FROM lake.jobs {newest})
LEFT JOIN (SELECT job, exit_status, runtime_seconds, ended_at FROM lake.runs {newest}) USING (job)
WHERE cluster <> 'canary' AND to_timestamp(started_at)::DATE BETWEEN '{since}' AND '{until}'"""
_JOBS: Final = """
SELECT began, CASE WHEN began = 0 THEN 0 WHEN steps = 1 THEN seconds ELSE ends - began END, ended, ranks, failed,
    dense_rank() OVER (ORDER BY "user"), dense_rank() OVER (ORDER BY app)
FROM (
    -- The name of a step is that of its job, a dot, and its number.
    SELECT cluster, regexp_replace(job, '[.][^.]*$', '') AS name, count(*) AS steps, min(started_at) AS began,
        max(ended_at) AS ends, bool_and(ended_at > 0) AS ended, max(runtime_seconds) AS seconds,
        max(ranks) AS ranks, arg_max(exit_status, ended_at) <> 0 AS failed, arg_min("user", started_at) AS "user",
        arg_min(app, started_at) AS app
    FROM ({steps}) GROUP BY ALL
)
ORDER BY began, name"""


def lake_jobs(options: argparse.Namespace) -> tuple[list[LoggedJob], Counter[str]]:
    """The jobs of a lake that have ended, their steps as one, and how many others there are, by reason.

    A lake has no submissions and no requests: a job is submitted when its first step begins. Its executable is the
    application of that step. Raises BadTable.
    """
    since, until = history.days(options)
    steps = _STEPS.format(newest=newest("job"), since=since, until=until)
    with history.opened(options) as catalog, catalog.reading():
        rows = catalog.connection.execute(_JOBS.format(steps=steps)).fetchall()
    jobs: list[LoggedJob] = []
    skipped: Counter[str] = Counter()
    for began, seconds, ended, ranks, failed, user, executable in rows:
        if not ended:
            skipped["jobs without an end"] += 1
        elif not seconds > 0:
            skipped["jobs without runtime"] += 1
        else:
            jobs.append(LoggedJob(began, began, seconds, failed, ranks or UNKNOWN, user=user, executable=executable))
    if len(jobs) < MIN_JOBS:
        raise BadTable(
            f"{options.lake} has {len(jobs)} jobs of that time that have ended, expected at least {MIN_JOBS}"
        )
    return jobs, skipped
