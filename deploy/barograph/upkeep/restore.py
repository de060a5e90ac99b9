"""`barograph restore`: a backup, or what the lake has of a log, becomes the log of a collector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barograph.cli import CommandError, Parser
from barograph.upkeep.backup import summary
from barograph.views.words import local
from barograph_agent.settings.sources import ConfigError
from barograph_collector.backup.archive import BackupError
from barograph_collector.backup.restore import restore, restore_from_lake
from barograph_collector.daemon.service import Exit
from barograph_collector.settings import add_log_options, named_log
from barograph_collector.storage.days.extensions import LakeError


def main(arguments: Sequence[str]) -> int:
    """Restore a log; 65 if that cannot be done."""
    parser = Parser(
        prog="barograph restore",
        description="Make a backup, or what a lake has of a log, the log of a state directory, before the collector is "
        "started. Rows that were acknowledged after the backup, or after the last sealed period, are lost: agents have "
        "deleted them.",
    )
    parser.add_argument("backup", nargs="?", type=Path, metavar="DIR", help="a directory made by barograph backup")
    parser.add_argument("--replace", action="store_true", help="put a log that is there aside, within the directory")
    parser.add_argument("--log", metavar="NAME", help="instead of a backup: the name of a log of the lake")
    add_log_options(parser)
    apart = "with --log: the directory of its journal, if that was apart from it; nothing that was acknowledged is lost"
    parser.add_argument("--journal", type=Path, metavar="DIR", help=apart)
    options = parser.parse_args(arguments)
    if (options.backup is None) == (options.log is None):
        parser.error("expected DIR, or --log and --lake")
    try:
        state, lake, journal = named_log(options)
        journal = options.journal or journal
        if options.log is None:
            found = restore(options.backup, state, lake, replace=options.replace)
        elif lake is not None:
            found = restore_from_lake(options.log, lake, state, journal=journal, replace=options.replace)
        else:
            parser.error("argument --log: expected --lake with it")
    except (BackupError, ConfigError, LakeError) as error:
        raise CommandError(str(error)) from None
    if found.aside is not None:
        print(f"{found.aside}: the log that was there")
    until = local(found.backup.made_at)
    print(f"{state}: {summary(found.backup)}, of {until}", *found.missing(until), sep="\nmissing: ")
    return Exit.OK
