"""A file to import: opened, its format recognised, read line by line."""

from __future__ import annotations

import gzip
import io
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from barograph.imports.mapping import BadMap
from barograph.imports.record import Entry
from barograph.imports.sacct import read_sacct
from barograph.imports.swf import read_swf
from barograph.imports.table import read_table

FORMATS: Final = ("sacct", "swf", "csv")
STANDARD_INPUT: Final = "-"


class Options(NamedTuple):
    """How to read: format (empty: recognised), mapping of columns, cluster and app of rows that name none."""

    format: str
    mapping: Mapping[str, str]
    cluster: str
    app: str


class Source(NamedTuple):
    """An open file: its lines, its size in bytes (None where not known), and how many of them have been read."""

    lines: Iterator[str]
    size: int | None
    position: Callable[[], int]


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """Open a file, gzip or not, or standard input. Raises OSError. Bytes that are not UTF-8 are replaced."""
    if path == STANDARD_INPUT:
        with open(sys.stdin.fileno(), encoding="utf-8", errors="replace", newline="", closefd=False) as text:
            yield Source(iter(text), None, lambda: 0)
        return
    with Path(path).open("rb") as raw:
        stream: IO[bytes] = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw  # type: ignore[assignment]
        with io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="") as text:
            yield Source(iter(text), Path(path).stat().st_size, raw.tell)


def entries(path: str, lines: Iterator[str], options: Options) -> Iterator[Entry]:
    """What the lines say. Raises BadMap for columns that are not there."""
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
