"""`barograph files`: list the installed units, hooks, rules and dashboards."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

FOLDER: Final = "share/barograph/"
EXIT_DATA: Final = 65


def installed() -> list[Path]:
    """The files, sorted; none where this copy was not installed as a package."""
    try:
        known = metadata.files("barograph") or []
    except metadata.PackageNotFoundError:
        known = []
    return sorted(Path(str(file.locate())).resolve() for file in known if FOLDER in file.as_posix())


def main(arguments: Sequence[str]) -> int:
    """Print the files, a line each; 65 if there are none."""
    parser = argparse.ArgumentParser(
        prog="barograph files", description="Say where units, hooks, rules and dashboards were installed."
    )
    parser.add_argument("folder", nargs="?", default="", help="only those in a folder of this name, as rules")
    options = parser.parse_args(arguments)
    found = [path for path in installed() if not options.folder or options.folder in path.parts]
    if not found:
        what = f"of {options.folder!r} " if options.folder else ""
        print(f"barograph files: none {what}is installed, expected a package installed by pip", file=sys.stderr)
        return EXIT_DATA
    print(*found, sep="\n")
    return 0
