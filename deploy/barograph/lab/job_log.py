"""Jobs from a log in the Standard Workload Format, with what their scheduler had of them at submission."""

from __future__ import annotations

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
from barograph_modeler.limits.job import UNKNOWN, SubmittedJob
from barograph_modeler.studies.limits.logged_job import LoggedJob
from barograph_modeler.studies.series import BadTable

FAILED: Final = 0
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
    processors, requested, memory, status, user, group, executable, queue = values[7:15]
    if status in PARTS:
        return "lines about parts of jobs"
    if runtime <= 0:
        return "jobs without runtime"
    if submitted < 0:
        raise UnreadableLine(f"field 2 is '{submitted:g}', expected the submission in seconds from 0")
    return LoggedJob(
        SubmittedJob(
            submitted=submitted,
            processors=next((one for one in (processors, allocated) if one > 0), UNKNOWN),
            requested=requested if requested > 0 else UNKNOWN,
            user=int(user),
            executable=int(executable),
            queue=int(queue),
            group=int(group),
            memory=memory,
        ),
        started=submitted + max(waited, 0.0),
        runtime=runtime,
        failed=status == FAILED,
    )
