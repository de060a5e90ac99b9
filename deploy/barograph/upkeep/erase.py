"""`barograph erase`: removes what the log and the lake have of one user's jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from barograph.cli import CommandError, Parser
from barograph.views.words import plural
from barograph_agent.settings.sources import ConfigError
from barograph_collector.daemon.service import Exit
from barograph_collector.erase.erasure import ErasureError, erase
from barograph_collector.settings import add_log_options, named_log
from barograph_collector.storage.days.extensions import LakeError


def main(arguments: Sequence[str]) -> int:
    """Erase, or count; 65 if that cannot be done, or the user has no job."""
    parser = Parser(
        prog="barograph erase",
        description="Remove all rows of a user's jobs from the log, its journal and the lake, while the collector is "
        "stopped. Without --yes it only says what there is.",
    )
    parser.add_argument("user", metavar="USER", help="the name of the account, as in the table jobs")
    add_log_options(parser)
    parser.add_argument("--yes", action="store_true", help="erase")
    options = parser.parse_args(arguments)
    try:
        log = named_log(options)
        found = erase(options.user, log.state, log.lake, dry=not options.yes)
    except (ConfigError, ErasureError, LakeError) as error:
        raise CommandError(str(error)) from None
    if not (found.jobs or found.rows or found.lake_rows):
        raise CommandError(f"no job of {options.user!r} is in the log or the lake, expected a user of the table jobs")
    verb = "erased" if options.yes else "would erase"
    print(f"{verb} {plural(found.jobs, 'job')} of {options.user}")
    for table, rows in found.rows.items():
        print(f"  {plural(rows, 'row')} of {table}")
    if found.lake_files:
        print(f"  {plural(found.lake_rows, 'row')} in {plural(found.lake_files, 'file')} of the lake")
    for path in found.deleted:
        print(f"  the file {path}")
    for path in found.left:
        print(f"left: {path}, an older log")
    if not options.yes:
        print("barograph erase: --yes erases it", file=sys.stderr)
    return Exit.OK
