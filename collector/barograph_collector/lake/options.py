"""Options that name a lake, as the settings of the collector do."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from barograph_collector.lake.place import Lake, lake_place


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--lake",
        type=lake_place,
        metavar="PLACE",
        help="the directory of the lake, or s3://BUCKET/PREFIX, if there is one",
    )
    parser.add_argument("--lake-endpoint", metavar="URL", default="", help="the object store of the lake")
    parser.add_argument("--lake-credentials", type=Path, metavar="FILE", help="a file with the keys of that store")
    parser.add_argument("--catalog", metavar="URL", default="", help="the database of its catalog, where it has one")


def named(options: argparse.Namespace) -> Lake | None:
    """The lake that the options name, None for none. Raises LakeError."""
    if options.lake is None:
        return None
    return Lake.find(
        options.lake,
        options.state,
        options.catalog,
        options.lake_endpoint,
        options.lake_credentials,
        os.environ,
    )
