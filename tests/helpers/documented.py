"""Tables of the documentation beside the commands that print them, and the tables that the commands print."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
Cells = dict[tuple[str, str], str]
"""The cells of a table by row and column."""
_TITLED: Final = re.compile(r"^\*\*(.+)\*\*\n\n((?:\|.*(?:\n|\Z))+)", re.MULTILINE)
_SHELL: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cells(table: str) -> Cells:
    """A table in Markdown."""
    header, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines())
    return {(row[0], name): cell for row in rows for name, cell in zip(header[1:], row[1:], strict=True)}


def titled(text: str) -> dict[str, Cells]:
    """The tables of a text below a title in bold, by title."""
    return {title: cells(table) for title, table in _TITLED.findall(text)}


def printed_by(page: str) -> Iterator[tuple[str, dict[str, Cells]]]:
    """The shell blocks of a page with the titled tables between each block and the next."""
    parts = _SHELL.split((DOCS / page).read_text())
    yield from zip(parts[1::2], map(titled, parts[2::2]), strict=True)


def run(commands: str, folder: Path) -> str:
    """What the lines of a shell block print, in a folder."""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def differing(written: Cells, printed: Cells, loose: Mapping[str, float], tolerance: float) -> list[str]:
    """Cells of a page that the command prints otherwise. loose: relative tolerance by row; tolerance: absolute."""
    found = []
    for place, cell in written.items():
        other = printed.get(place, "no such cell")
        try:
            near = math.isclose(float(cell), float(other), rel_tol=loose.get(place[0], 0.0), abs_tol=tolerance)
        except ValueError:
            near = cell == other
        if not near:
            found.append(f"{place[0]}, {place[1]}: {cell}, the command prints {other}")
    return found
