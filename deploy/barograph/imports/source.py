"""A file to import: opened, its format detected, read line by line."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from rich.progress import Progress

from barograph.imports.mapping import BadMap
from barograph.imports.record import Entry
from barograph.imports.sacct import read_sacct
from barograph.imports.swf import read_swf
from barograph.imports.table import read_table

FORMATS: Final = ("sacct", "swf", "csv")
STANDARD_INPUT: Final = "-"


class Options(NamedTuple):
    """How to read: format (empty: detected), mapping of columns, cluster and application of rows that name none."""

    format: str
    mapping: Mapping[str, str]
    cluster: str
    app: str


@contextlib.contextmanager
def opened(path: str, progress: Progress) -> Iterator[Iterator[str]]:
    """The lines of a file, gzip or not, or of standard input. Raises OSError. Bytes that are not UTF-8 are replaced.

    The last task of `progress` shows how much of the file has been read.
    """
    with contextlib.ExitStack() as files:
        stream: Any
        if path == STANDARD_INPUT:
            stream = files.enter_context(open(sys.stdin.fileno(), "rb", closefd=False))
        else:
            stream = files.enter_context(progress.open(path, "rb", task_id=progress.task_ids[-1]))
        if path.endswith(".gz"):
            stream = files.enter_context(gzip.open(stream))
        yield iter(files.enter_context(io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")))


def entries(path: str, lines: Iterator[str], options: Options) -> Iterator[Entry]:
    """The entries in the lines. Raises BadMap for missing columns."""
    kind, mapping, cluster, app = options
    first = next(lines, None)
    if first is None:
        raise BadMap("the file is empty")
    every = itertools.chain([first], lines)
    if not kind:
        swf = path.removesuffix(".gz").endswith(".swf") or first.startswith(";")
        kind = "swf" if swf else "sacct" if "|" in first else "csv"
    if kind != "swf":
        return (read_sacct if kind == "sacct" else read_table)(every, mapping, cluster, app)
    if mapping:
        raise BadMap("--map is for files with column names, and the Standard Workload Format has none")
    return read_swf(every, cluster, app)
