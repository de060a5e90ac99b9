"""`barograph backup`: a copy of the log while the collector runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from barograph.cli import CommandError, Parser
from barograph_agent.settings.sources import ConfigError
from barograph_collector.backup.archive import Backup, BackupError, make
from barograph_collector.daemon.service import Exit
from barograph_collector.settings import add_log_options, named_log
from barograph_collector.storage.days.extensions import LakeError


def summary(found: Backup) -> str:
    """What a backup holds, in words."""
    return f"{found.total:,} rows, up to offset {found.head:,}"


def main(arguments: Sequence[str]) -> int:
    """Copy the log; 65 if that cannot be done."""
    parser = Parser(
        prog="barograph backup",
        description="Copy the log of a collector on this host to a new directory, while it runs or not. Every row that "
        "was acknowledged before the command began is in the copy, which is opened once to check it. Keys are not "
        "part of it.",
    )
    parser.add_argument("target", type=Path, metavar="DIR", help="the directory to make")
    add_log_options(parser)
    options = parser.parse_args(arguments)
    columns = (TextColumn("copying"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task("copying", total=None)
        try:
            state = named_log(options).state
            found = make(state, options.target, lambda done, total: shown.update(task, completed=done, total=total))
        except (BackupError, ConfigError, LakeError) as error:
            raise CommandError(str(error)) from None
    print(f"{options.target}: {summary(found)}")
    return Exit.OK
