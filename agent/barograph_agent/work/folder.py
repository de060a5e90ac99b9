"""The small files in a program's working folder, which it may read without a word that names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barograph_agent.system.disk import Disk
from barograph_agent.work.contents import Contents

MAX_NAMES: Final = 512
"""Names in one folder; of a folder with more nothing is known."""
MAX_FOLDERS: Final = 16
MAX_FILES: Final = 64
FILE_BYTES: Final = 2**18
"""Bigger files are left out: inputs that people write are small, and results are often big."""
TOTAL_BYTES: Final = 2**21
_BUILD: Final = re.compile(
    r".+\.(c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|f|for|ftn|f77|f90|f95|f03|f08|mod|smod|o|obj|lo|a|la|so|d)"
    r"|(gnu)?makefile(\..*)?|cmake(lists|cache)\.txt",
    re.IGNORECASE,
)
"""Names of what programs are built from: a new build is the same work."""
_PROGRAM: Final = b"\x7fELF"


class FolderTooBig(Exception):
    """More files, folders or bytes than are read. The text says of what."""


def small_files(place: Path, disk: Disk, contents: Contents, changed_before: float) -> Iterator[tuple[bytes, str]]:
    """Names and digests of the files in a folder and in those in it, in the order of their names.

    Names are relative to `place`. Hidden files, those that were changed later than `changed_before` (Unix seconds),
    programs and what they are built from are left out. Raises FolderTooBig where there are more than are read, after
    those that are.
    """
    files = size = 0
    folders: list[Path] = []
    for is_inner, folder, name in _entries(place, disk, folders):
        found = contents.of_file(folder / name, changed_before, FILE_BYTES)
        if found is None and not is_inner:
            folders.append(folder / name)
        if found is None or not found.digest or contents.beginning(folder / name, len(_PROGRAM)) == _PROGRAM:
            continue
        files, size = files + 1, size + found.size
        if files > MAX_FILES or size > TOTAL_BYTES:
            raise FolderTooBig(f"more than {MAX_FILES} files or {TOTAL_BYTES // 2**20} MB")
        path = folder.name + "/" + name if is_inner else name
        yield path.encode(errors="surrogateescape"), found.digest


def _entries(place: Path, disk: Disk, folders: list[Path]) -> Iterator[tuple[bool, Path, str]]:
    """Each name in the folder, then those in `folders`, which may grow meanwhile, and whether it is one of these."""
    for name in _names(place, disk):
        yield False, place, name
    for folder in folders[:MAX_FOLDERS]:
        for name in _names(folder, disk):
            yield True, folder, name


def _names(folder: Path, disk: Disk) -> list[str]:
    try:
        names = disk.some_names(folder, MAX_NAMES + 1)
    except OSError:
        return []
    if len(names) > MAX_NAMES:
        raise FolderTooBig(f"more than {MAX_NAMES} names in one")
    return [name for name in names if not name.startswith(".") and not _BUILD.fullmatch(name)]
