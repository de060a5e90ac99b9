"""`barograph restore`: a backup, or what the lake has of a log, becomes the log of a collector."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from barograph.cli import CommandError
from barograph.upkeep.backup import summary
from barograph.views.words import local
from barograph_agent.settings.sources import ConfigError
from barograph_collector.backup.archive import BackupError
from barograph_collector.backup.from_lake import restore_from_lake
from barograph_collector.backup.restore import restore
from barograph_collector.daemon.service import Exit
from barograph_collector.settings import add_lake_options, named_lake
from barograph_collector.storage.days.extensions import LakeError


def main(arguments: Sequence[str]) -> int:
    """Restore a log; 65 if that cannot be done."""
    parser = argparse.ArgumentParser(
        prog="barograph restore",
        description="Make a backup, or what a lake has of a log, the log of a state directory, before the collector is "
        "started. Rows that were acknowledged after the backup, or after the last commit to the lake, are lost: agents "
        "have deleted them.",
    )
    parser.add_argument("backup", nargs="?", type=Path, metavar="DIR", help="a directory made by barograph backup")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the collector's state directory")
    parser.add_argument("--replace", action="store_true", help="put a log that is there aside, within the directory")
    parser.add_argument("--log", metavar="NAME", help="instead of a backup: the name of a log of the lake")
    add_lake_options(parser)
    apart = "with --log: the directory of its journal, if that was apart from it; nothing that was acknowledged is lost"
    parser.add_argument("--journal", type=Path, metavar="DIR", help=apart)
    options = parser.parse_args(arguments)
    if (options.backup is None) == (options.log is None):
        parser.error("expected DIR, or --log and --lake")
    try:
        if options.log is None:
            found, aside = restore(options.backup, options.state, replace=options.replace)
        elif (lake := named_lake(options)) is not None:
            place, kept = options.state, options.journal
            found, aside = restore_from_lake(options.log, lake, place, journal=kept, replace=options.replace)
        else:
            parser.error("argument --log: expected --lake with it")
    except (BackupError, ConfigError, LakeError) as error:
        raise CommandError(str(error)) from None
    if aside is not None:
        print(f"{aside}: the log that was there")
    print(f"{options.state}: {summary(found)}, of {local(found.made_at)}")
    return Exit.OK
