"""What `make check` says of the house: a public class name stands for one class, and a folder can be read at a glance.

Prints each finding on a line and exits with 1 where there is one.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("agent", "collector", "modeler", "alerts", "deploy")
MOST_SIBLINGS: Final = 13
"""Modules side by side, `__init__.py` included."""


def class_names(files: list[Path]) -> list[str]:
    """Public names that more than one class has."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(REPOSITORY)))
    return [
        f"class {name}: in {', '.join(found)}; expected one class of this name"
        for name, found in sorted(places.items())
        if len(found) > 1
    ]


def crowded(files: list[Path]) -> list[str]:
    """Folders with more modules than a reader takes in at once."""
    folders: defaultdict[Path, int] = defaultdict(int)
    for file in files:
        folders[file.parent] += 1
    return [
        f"{folder.relative_to(REPOSITORY)}: {count} modules side by side, expected at most {MOST_SIBLINGS}"
        for folder, count in sorted(folders.items())
        if count > MOST_SIBLINGS
    ]


def main() -> int:
    """The exit status."""
    files = sorted(file for package in PACKAGES for file in (REPOSITORY / package).rglob("*.py"))
    findings = class_names(files) + crowded(files)
    print("\n".join(findings) or f"{len(files)} modules: no class name twice, no crowded folder")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
