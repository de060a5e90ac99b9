"""Runs from a CSV file: one per line, with columns named by `--map` or as the fields."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from barograph.imports.mapping import FIELDS, Dialect, FieldRow, read_rows
from barograph.imports.record import Bad, Entry, RunRecord, Skipped, UnreadableLine, app_name, count
from barograph.imports.times import duration, span
from barograph_agent.job.identity import Job, clean

CSV: Final = Dialect(
    ",",
    {field: [field] for field in FIELDS},
    needed=("app", "ranks", "seconds"),
    header="",
    missing="--map {field}=COLUMN, a column of: {header}",
)
DONE: Final = {"COMPLETED", "CD", "0", "0:0"}
"""States of a run that ended well: Slurm's names, and exit statuses."""
_CORE: Final = ("ranks", "nodes", "seconds", "start", "end")


def read_table(lines: Iterable[str], mapping: Mapping[str, str], cluster: str, app: str) -> Iterator[Entry]:
    """The runs of a CSV file. cluster, app: of rows that name none. Raises BadMap.

    A run without `id` is identified by the content of its line and the number of earlier lines of the same content:
    repeated measurements are different runs, and importing the file again adds nothing.
    """
    seen: Counter[str] = Counter()
    for row in read_rows(lines, CSV, mapping, app):
        if isinstance(row, FieldRow):
            yield entry(row, row.asked(), "0", functools.partial(_job, row, seen, cluster, app))
        else:
            yield row


def entry(row: FieldRow, asked: Mapping[str, str], default_state: str, make_job: Callable[[], Job]) -> Entry:
    """The entry of a row. asked: what was asked for. default_state: where the row has none.

    make_job: its job; may raise UnreadableLine.
    """
    state = (row.get("state").split() or [default_state])[0].upper()
    if state not in DONE:
        return Skipped(row.line, state[:40])
    try:
        job = make_job()
        ranks = count("ranks", row.get("ranks"))
        seconds = duration("seconds", row.get("seconds"))
        nodes = count("nodes", text) if (text := row.get("nodes")) else 0
        if nodes > ranks:
            raise UnreadableLine(f"nodes is {nodes}, expected at most the {ranks} ranks")
        times = span(row.get("start"), row.get("end"), seconds)
    except UnreadableLine as error:
        return Bad(row.line, str(error))
    return RunRecord(row.line, job, ranks, nodes, seconds, *times, asked)


def job_of(row: FieldRow, whole: FieldRow, job_id: str, step: str, cluster: str, app: str) -> Job:
    """The job of a row. whole: the row of the whole job, for empty cells of a step. Raises UnreadableLine."""
    return Job(
        cluster=clean(row.get("cluster"), cluster, 24),
        id=job_id,
        restart=count("restart", text) if (text := row.get("restart")).strip("0") else 0,
        step=step,
        user=clean(row.get("user") or whole.get("user"), "unknown", 32),
        host=clean(row.get("host"), "unknown", 64),
        app=app_name(row.get("app") or app or whole.get("app")),
        params={name: text for name, text in row.params().items() if text},
    )


def _job(row: FieldRow, seen: Counter[str], cluster: str, app: str) -> Job:
    """The job of a row, with an id from its content if it has none."""
    job = job_of(row, row, clean(row.get("id"), ""), clean(row.get("step"), "0"), cluster, app)
    if job.id:
        return job
    content = [job.app, *map(row.get, _CORE), *map("=".join, sorted(row.params().items()))]
    digest = hashlib.blake2b("\0".join(content).encode(errors="replace"), digest_size=12).hexdigest()
    seen[digest] += 1
    return replace(job, id=f"{digest}-{seen[digest]}")
