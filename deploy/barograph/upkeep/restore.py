"""`barograph restore`: a backup becomes the log of a collector."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from barograph.cli import CommandError
from barograph.upkeep.backup import summary
from barograph.views.words import local
from barograph_collector.backup.archive import BackupError
from barograph_collector.backup.restore import restore
from barograph_collector.daemon.service import Exit


def main(arguments: Sequence[str]) -> int:
    """Restore a backup; 65 if that cannot be done."""
    parser = argparse.ArgumentParser(
        prog="barograph restore",
        description="Make a backup the log of a state directory, before the collector is started. Rows that were "
        "acknowledged after the backup are lost: agents have deleted them.",
    )
    parser.add_argument("backup", type=Path, metavar="DIR", help="a directory made by barograph backup")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the collector's state directory")
    parser.add_argument("--replace", action="store_true", help="put a log that is there aside, within the directory")
    options = parser.parse_args(arguments)
    try:
        found, aside = restore(options.backup, options.state, replace=options.replace)
    except BackupError as error:
        raise CommandError(str(error)) from None
    if aside is not None:
        print(f"{aside}: the log that was there")
    print(f"{options.state}: {summary(found)}, of {local(found.made_at)}")
    return Exit.OK
