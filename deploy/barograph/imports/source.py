"""A file to import: opened, its format detected, read line by line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import re
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
_COMPRESSED: Final[Mapping[bytes, Any]] = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ\0": lzma}
_FOREIGN: Final = {b"\x28\xb5\x2f\xfd": "compressed by zstd", b"PK\3\4": "a zip archive", b"PAR1": "Parquet",
                   b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # fmt: skip
_LOGS: Final = {
    "JSON": re.compile(r"\s*[\[{]"),
    "output of `sacct` without -P": re.compile(r"\s*JobID(Raw)?\s{2,}\S"),
    "an accounting log of PBS": re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;\w;"),
    "an accounting log of LSF": re.compile(r'"[A-Z_]+" "\d'),
    "an accounting log of Grid Engine": re.compile(r"[^:|,]*(:[^:|,]*){40}"),
}
"""Other logs, by the form of their first line."""


class Options(NamedTuple):
    """How to read: format (empty: detected), mapping of columns, cluster and application of rows that name none.

    assume_completed: whether SWF runs of unknown state count.
    """

    format: str
    mapping: Mapping[str, str]
    cluster: str
    app: str
    assume_completed: bool = False


@contextlib.contextmanager
def opened(path: str, progress: Progress) -> Iterator[Iterator[str]]:
    """The lines of a file, compressed or not, or of standard input. Raises OSError and BadMap. Bytes that are not UTF-8
    are replaced.

    The last task of `progress` shows how much of the file has been read.
    """
    with contextlib.ExitStack() as files:
        stream: Any
        if path == STANDARD_INPUT:
            stream = files.enter_context(open(sys.stdin.fileno(), "rb", closefd=False))
        else:
            stream = files.enter_context(progress.open(path, "rb", task_id=progress.task_ids[-1]))
        stream = files.enter_context(io.BufferedReader(stream))
        first = stream.peek(8)
        if name := next((name for magic, name in _FOREIGN.items() if first.startswith(magic)), ""):
            raise BadMap(f"the file is {name}, expected text, or text compressed by gzip, bzip2 or xz")
        if module := next((module for magic, module in _COMPRESSED.items() if first.startswith(magic)), None):
            stream = files.enter_context(module.open(stream))
        yield iter(files.enter_context(io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")))


def entries(path: str, lines: Iterator[str], options: Options) -> Iterator[Entry]:
    """The entries in the lines. Raises BadMap for missing columns."""
    kind, mapping, cluster, app, assume_completed = options
    first = next(lines, None)
    if first is None:
        raise BadMap("the file is empty")
    if name := next((name for name, form in _LOGS.items() if form.match(first)), ""):
        raise BadMap(f"the file looks like {name}, expected output of `sacct -P`, SWF or CSV")
    every = itertools.chain([first], lines)
    if not kind:
        swf = path.removesuffix(".gz").endswith(".swf") or first.startswith(";")
        kind = "swf" if swf else "sacct" if "|" in first else "csv"
    if kind != "swf":
        return (read_sacct if kind == "sacct" else read_table)(every, mapping, cluster, app)
    if mapping:
        raise BadMap("--map is for files with column names, and the Standard Workload Format has none")
    return read_swf(every, cluster, app, assume_completed=assume_completed)
