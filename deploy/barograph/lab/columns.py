"""What commands that score or study tables share: types of options, refusals, remarks and printed tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table as Picture

from barograph_collector.daemon.service import Exit
from barograph_modeler.studies.series import BadTable, Join

Value = TypeVar("Value")
HEADED = "a CSV file with a line of column names"


def listed(title: str, known: Iterable[tuple[str, str]]) -> str:
    """The epilog of a help text: names and what they do."""
    return "\n".join([f"{title}:", *(f"  {name}: {text}" for name, text in known)])


def add_join(parser: argparse.ArgumentParser) -> None:
    """The options of a second file with further columns."""
    parser.add_argument("--join", type=Path, metavar="FILE2.csv", help="take further columns from this file")
    parser.add_argument("--on", metavar="COL", help="the column that both files share")


def join_of(options: argparse.Namespace) -> Join | None:
    """What `add_join`'s options ask for."""
    return None if options.join is None else Join(options.join, options.on)


def checked(convert: Callable[[str], Value], good: Callable[[Value], bool], wanted: str) -> Callable[[str], Value]:
    """The type of an option whose text converts to a good value. It raises argparse.ArgumentTypeError."""

    def parse(text: str) -> Value:
        try:
            if good(value := convert(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r}, expected {wanted}")

    return parse


names = checked(lambda text: text.split(","), all, "names of columns with commas between them")
"""The type of an option that lists columns or models."""


def chosen(wanted: Sequence[str], known: Mapping[str, Value]) -> list[Value]:
    """The models that --models names, `all` for all of them. Raises BadTable for one that there is not."""
    if wanted == ["all"]:
        return list(known.values())
    if unknown := [name for name in wanted if name not in known]:
        raise BadTable(f"--models: no model {unknown[0]!r}, expected all or some of {', '.join(known)}")
    return [known[name] for name in wanted]


def say(text: str, command: str = "backtest") -> None:
    """Print something beside the result of a command."""
    print(f"barograph {command}: {text}", file=sys.stderr)


def refuse(command: str, error: ValueError | OSError) -> int:
    """Print in one line why a file cannot be used; the exit status for that."""
    say(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error), command)
    return Exit.DATA


def console(width: int = 120) -> Console:
    """Standard output. width: columns where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else width)


def picture(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[int] = (0,)) -> Picture:
    """A table to print. left: the columns of text; the others are figures, aligned right."""
    table = Picture(title=title, title_justify="left")
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i in left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def percent(share: float | None) -> str:
    """A share as text: "12.3 %", from 10 on as a multiple; "-" where there is none."""
    return "-" if share is None else f"{100 * share:.1f} %" if share < 10 else f"{share:.0f} x"
