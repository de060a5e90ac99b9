"""Runs from a CSV file: one line each, columns named by `--map` or named as the fields are."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from barograph.imports.mapping import FIELDS, BadMap, FieldColumns
from barograph.imports.record import Bad, Entry, RunRecord, Skipped, UnreadableLine, app_name, count, nodes_of
from barograph.imports.times import duration, instant, span
from barograph_agent.job.identity import Job, clean

NEEDED: Final = ("app", "ranks", "seconds")
DONE: Final = {"COMPLETED", "CD", "0", "0:0"}
"""States of a run that ended well: as Slurm names it, or its exit status."""
_CORE: Final = ("ranks", "nodes", "seconds", "start", "end")


def read_rows(lines: Iterable[str], delimiter: str = ",") -> Iterator[tuple[int, list[str] | str]]:
    """Line number and cells of each line that is not empty; for one that is no row of cells, what is wrong with it."""
    reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, str(error)
            continue
        if any(cell.strip() for cell in row):
            yield line, row


def read_table(lines: Iterable[str], mapping: Mapping[str, str], cluster: str, app: str) -> Iterator[Entry]:
    """The runs of a CSV file. cluster, app: of rows that do not name theirs. Raises BadMap.

    A run without `id` is known by what its line says and by how many lines before it say the same: repeated
    measurements stay apart, and the same file again is the same runs.
    """
    rows = read_rows(lines)
    _, header = next(rows, (0, []))
    if isinstance(header, str) or not header:
        raise BadMap("the file has no line of column names")
    header[0] = header[0].removeprefix("\ufeff")
    columns = FieldColumns(header, mapping, {field: [field] for field in FIELDS})
    for field in NEEDED:
        if field not in columns and not (field == "app" and app):
            raise BadMap(f"no column says {field}, expected --map {field}=COLUMN, a column of: {', '.join(header)}")
    seen: Counter[str] = Counter()
    for line, row in rows:
        yield _entry(line, row, columns, seen, cluster, app)


def _entry(line: int, row: list[str] | str, columns: FieldColumns, seen: Counter[str], cluster: str, app: str) -> Entry:
    try:
        if isinstance(row, str):
            raise UnreadableLine(row)
        if not columns.fits(row):
            raise UnreadableLine(f"{len(row)} cells, expected {columns.width} as in the first line")
        state = columns.get(row, "state")
        if state and state.split()[0].upper() not in DONE:
            return Skipped(line, state.split()[0].upper()[:40])
        job = Job(
            cluster=clean(columns.get(row, "cluster"), cluster, 24),
            id="",
            restart=restarts(columns.get(row, "restart")),
            step=clean(columns.get(row, "step"), "0"),
            user=clean(columns.get(row, "user"), "unknown", 32),
            host=clean(columns.get(row, "host"), "unknown", 64),
            app=app_name(columns.get(row, "app") or app),
            params=columns.params(row),
        )
        return record(line, row, columns, job, clean(columns.get(row, "id"), "") or _content(row, columns, job, seen))
    except UnreadableLine as error:
        return Bad(line, str(error))


def record(line: int, row: Sequence[str], columns: FieldColumns, job: Job, job_id: str) -> RunRecord:
    """The run in a row, under this id. Raises Unreadable."""
    ranks = count("ranks", columns.get(row, "ranks"))
    seconds = duration("seconds", columns.get(row, "seconds"))
    times = span(instant("start", columns.get(row, "start")), instant("end", columns.get(row, "end")), seconds)
    known = Job(job.cluster, job_id, job.restart, job.step, job.user, job.host, job.app, job.params)
    return RunRecord(line, known, ranks, nodes_of(columns.get(row, "nodes"), ranks), seconds, *times)


def restarts(text: str) -> int:
    """How often the job was started again; 0 where nothing is said. Raises Unreadable."""
    return count("restart", text) if text.strip("0") else 0


def _content(row: Sequence[str], columns: FieldColumns, job: Job, seen: Counter[str]) -> str:
    said = [job.app, *(columns.get(row, field) for field in _CORE), *map("=".join, sorted(job.params.items()))]
    digest = hashlib.blake2b("\0".join(said).encode(errors="replace"), digest_size=12).hexdigest()
    seen[digest] += 1
    return f"{digest}-{seen[digest]}"
