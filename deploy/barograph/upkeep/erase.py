"""`barograph erase`: removes what the log and the lake have of one user's jobs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from barograph.cli import CommandError
from barograph_collector.daemon.service import Exit
from barograph_collector.erase.erasure import ErasureError, erase
from barograph_collector.lake.place import Lake, lake_place
from barograph_collector.storage.days.extensions import LakeError


def main(arguments: Sequence[str]) -> int:
    """Erase, or count; 65 if that cannot be done."""
    parser = argparse.ArgumentParser(
        prog="barograph erase",
        description="Remove all rows of a user's jobs from the log, its journal and the lake, while the collector is "
        "stopped. Without --yes it only says what there is.",
    )
    parser.add_argument("user", metavar="USER", help="the name of the account, as in the table jobs")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the collector's state directory")
    parser.add_argument(
        "--lake",
        type=lake_place,
        metavar="PLACE",
        help="the directory of the lake, or s3://BUCKET/PREFIX, if there is one",
    )
    parser.add_argument("--lake-endpoint", metavar="URL", default="", help="the object store of the lake")
    parser.add_argument("--lake-credentials", type=Path, metavar="FILE", help="a file with the keys of that store")
    parser.add_argument("--catalog", metavar="URL", default="", help="the database of its catalog, where it has one")
    parser.add_argument("--yes", action="store_true", help="erase")
    options = parser.parse_args(arguments)
    try:
        lake = options.lake and Lake.find(
            options.lake,
            options.state,
            options.catalog,
            options.lake_endpoint,
            options.lake_credentials,
            os.environ,
        )
        found = erase(options.user, options.state, lake, dry=not options.yes)
    except (ErasureError, LakeError) as error:
        raise CommandError(str(error)) from None
    verb = "erased" if options.yes else "would erase"
    print(f"{verb} {found.jobs:,} jobs of {options.user}")
    for table, rows in found.rows.items():
        print(f"  {rows:,} rows of {table}")
    if found.lake_files:
        print(f"  {found.lake_rows:,} rows in {found.lake_files:,} files of the lake")
    for path in found.deleted:
        print(f"  {path}")
    for path in found.left:
        print(f"left: {path}, an older log")
    if not options.yes:
        print("barograph erase: --yes erases it", file=sys.stderr)
    return Exit.OK
