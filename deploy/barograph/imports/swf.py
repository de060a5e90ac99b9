"""Runs from a log in the Standard Workload Format (Chapin et al. 1999, JSSPP): 18 numbers a line, `;` for comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from barograph.imports.record import Bad, Entry, RunRecord, Skipped, UnreadableLine, app_name, count
from barograph.imports.times import duration
from barograph_agent.job.identity import Job, clean

FIELDS: Final = 18
STATES: Final = {"0": "failed", "2": "checkpointed", "3": "checkpointed", "4": "checkpointed", "5": "cancelled"}
"""Reasons to skip a run, by its status field; 1 is completed."""
UNKNOWN_STATE: Final = "of unknown state"
_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?")
_EPOCH: Final = re.compile(r";\s*UnixStartTime:\s*(\d{1,11})\b")


def read_swf(lines: Iterable[str], cluster: str, app: str, *, assume_completed: bool = False) -> Iterator[Entry]:
    """The completed runs of an SWF log. app: the application, for logs without executable numbers.

    assume_completed: whether runs of unknown state count as completed: some logs have no states.

    Otherwise applications are `exeN` with the executable number N. Ranks are the allocated processors.
    """
    epoch = 0.0
    for line, text in enumerate(lines, 1):
        if match := _EPOCH.match(text):
            epoch = float(match[1])
        elif text.strip() and not text.lstrip().startswith(";"):
            try:
                values = fields(text)
                if assume_completed and values[10] == "-1":
                    values[10] = "1"
                yield _entry(line, values, epoch, cluster, app)
            except UnreadableLine as error:
                yield Bad(line, str(error))


def fields(text: str) -> list[str]:
    """The numbers of a job's line. Raises UnreadableLine."""
    values = text.split()
    if len(values) != FIELDS:
        raise UnreadableLine(f"{len(values)} fields, expected {FIELDS}")
    for number, value in enumerate(values, 1):
        if not _NUMBER.fullmatch(value):
            raise UnreadableLine(f"field {number} is {value[:80]!r}, expected a number")
    return values


def _entry(line: int, values: list[str], epoch: float, cluster: str, app: str) -> Entry:
    job_id, submitted, waited, seconds, processors, limit, memory, status, user, executable = (
        values[at - 1] for at in (1, 2, 3, 4, 5, 9, 10, 11, 12, 14)
    )
    if status != "1":
        return Skipped(line, STATES.get(status, UNKNOWN_STATE))
    if not app and executable.startswith("-"):
        return Skipped(line, "without executable number")
    if seconds in ("0", "-1"):
        return Skipped(line, "without runtime")
    runtime = duration("run time", seconds)
    started = epoch + float(submitted) + max(float(waited), 0.0) if epoch else 0.0
    job = Job(
        cluster=cluster,
        id=clean(job_id, "job"),
        restart=0,
        step="job",
        user=clean(f"user{user}", "unknown", 32),
        host="unknown",
        app=app_name(app or f"exe{executable}"),
        params={},
    )
    ended = started + runtime if epoch else 0.0
    numbers = {"job_name": executable, "requested_time": limit, "requested_memory": memory}
    asked = {name: text for name, text in numbers.items() if not text.startswith("-")}
    return RunRecord(line, job, count("allocated processors", processors), 0, runtime, started, ended, asked)
