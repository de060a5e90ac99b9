"""`barograph files`: list the installed units, hooks, rules and dashboards."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from barograph.cli import CommandError, Parser

FOLDER: Final = "share/barograph/"


def installed() -> list[Path]:
    """The installed files, sorted; none where Barograph is not installed as a package."""
    try:
        known = metadata.files("barograph") or []
    except metadata.PackageNotFoundError:
        known = []
    return sorted(Path(str(file.locate())).resolve() for file in known if FOLDER in file.as_posix())


def main(arguments: Sequence[str]) -> int:
    """Print one path per line; 65 if there are none."""
    parser = Parser(prog="barograph files", description="List the installed units, hooks, rules and dashboards.")
    parser.add_argument("folder", nargs="?", default="", help="only files in a folder of this name, such as rules")
    options = parser.parse_args(arguments)
    found = [path for path in installed() if not options.folder or options.folder in path.parts]
    if not found:
        what = f"of {options.folder!r} " if options.folder else ""
        raise CommandError(f"none {what}is installed, expected a package installed by pip")
    print(*found, sep="\n")
    return 0
