"""Shared by commands that score or study tables: option types, errors, notes and printed tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from barograph.cli import CommandError, checked
from barograph_lab.studies.series import BadTable, Join

Value = TypeVar("Value")
CSV_FILE = "a CSV file with a line of column names"


def add_subject(
    subjects: Any,
    name: str,
    execute: Callable[..., Any],
    *,
    help: str,
    description: str,
    listed: str = "",
    known: Iterable[tuple[str, str]] = (),
) -> argparse.ArgumentParser:
    """Add a subject that runs `execute`. listed, known: title and (name, help) lines of the epilog."""
    parser: argparse.ArgumentParser = subjects.add_parser(
        name,
        help=help,
        description=description,
        epilog="\n".join([f"{listed}:", *(f"  {one}: {text}" for one, text in known)]) if listed else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(execute=execute)
    return parser


def add_join(parser: argparse.ArgumentParser) -> None:
    """Add the options of a second file with further columns."""
    parser.add_argument("--join", type=Path, metavar="FILE2.csv", help="take further columns from this file")
    parser.add_argument("--on", metavar="COL", help="the column that both files share")


def join_of(options: argparse.Namespace) -> Join | None:
    """The value of `add_join`'s options."""
    return None if options.join is None else Join(options.join, options.on)


count = checked(int, lambda number: number >= 1, "a whole number of at least 1")
"""The type of an option that is a count."""
names = checked(lambda text: text.split(","), all, "names of columns with commas between them")
"""The type of an option that lists columns or models."""


def selected(wanted: Sequence[str], known: Mapping[str, Value]) -> list[Value]:
    """The models named by --models; `all` selects all. Raises BadTable for an unknown one."""
    if wanted == ["all"]:
        return list(known.values())
    if unknown := [name for name in wanted if name not in known]:
        raise BadTable(f"--models: no model {unknown[0]!r}, expected all or some of {', '.join(known)}")
    return [known[name] for name in wanted]


def note(text: str, command: str = "backtest") -> None:
    """Print a remark of a command to standard error."""
    print(f"barograph {command}: {text}", file=sys.stderr)


def unusable(error: ValueError | OSError) -> CommandError:
    """Why the input cannot be used, in one line."""
    return CommandError(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))


def table(
    title: str | None, heads: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[int] = (0,), **style: Any
) -> Table:
    """A table to print. left: the columns of text; the others are figures, aligned right."""
    printed = Table(title=title, title_justify="left", **style)
    for i, head in enumerate(heads):
        printed.add_column(head, justify="left" if i in left else "right")
    for row in rows:
        printed.add_row(*row)
    return printed


def progress_bar() -> Progress:
    """A bar on standard error, which is erased at its end; nothing where that is no terminal."""
    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def percent(share: float | None) -> str:
    """A share as text: "12.3 %", from 10 on as a multiple; "-" for None."""
    return "-" if share is None else f"{100 * share:.1f} %" if share < 10 else f"{share:.0f} x"
