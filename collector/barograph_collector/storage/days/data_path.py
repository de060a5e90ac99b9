"""Where the files of the lake are: below a directory, or in an object store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

import duckdb

from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM

DATA: Final = "data"
"""The directory of the files in that of the lake."""
SCHEME: Final = "s3://"
BUCKET_FORM: Final = "a bucket of 3 to 63 lower-case letters, digits, dots and hyphens"
_PLACE: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9_.=+-]+)*)/?")


class DataPath(Protocol):
    """The files of a lake, named by their paths below its root. All methods raise OSError, and LakeError."""

    lake: str
    """The lake, for people: its directory, or its bucket and prefix."""
    root: str
    """As SQL has it."""

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a connection read the files; before its access to files is restricted."""

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a connection that was loaded have the present credentials."""

    def refresh(self) -> None:
        """Read credentials again."""

    def check(self, known: bool) -> None:
        """Raises LakeError where no files can be. known: whether there is a lake already."""

    def make(self) -> None:
        """Create what `check` looks for."""

    def has_files(self) -> bool:
        """Whether there is any file of a table."""

    def at(self, path: PurePosixPath | str) -> str:
        """A file as SQL has it."""

    def below(self, file: str) -> PurePosixPath:
        """The path of a file that SQL has named."""

    def clear(self, folder: PurePosixPath, pattern: str) -> None:
        """Before files are written to a folder whose names match a pattern."""

    def finish(self, path: PurePosixPath) -> int:
        """The size in bytes of a file that was written, and is durable from then on."""

    def unlink(self, path: PurePosixPath) -> None:
        """Delete a file."""

    def find(self, prefix: str) -> Iterator[PurePosixPath]:
        """All files whose names begin with `prefix`."""

    def explain(self, text: str) -> str:
        """An error that DuckDB gave for a file, in words for an operator."""


class DirectoryPath:
    """Files below a directory."""

    def __init__(self, directory: Path, disk: Disk = SYSTEM.disk) -> None:
        """directory: of the lake."""
        self.lake = str(directory.absolute())
        self._data = directory.absolute() / DATA
        self.root = str(self._data)
        self._disk = disk

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Nothing."""

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Nothing."""

    def refresh(self) -> None:
        """Nothing."""

    def check(self, known: bool) -> None:
        """An empty directory is no lake."""
        if known and not self._disk.exists(self._data):
            raise FileNotFoundError(f"the lake {self.lake} has no {DATA}")

    def make(self) -> None:
        """The directory and those above it."""
        self._disk.make_directory(self._data, parents=True)

    def has_files(self) -> bool:
        """Whether there is any."""
        return any(self._data.rglob("*.parquet"))

    def at(self, path: PurePosixPath | str) -> str:
        """Its absolute path."""
        return str(self._data / path)

    def below(self, file: str) -> PurePosixPath:
        """The path without that of the directory."""
        return PurePosixPath(file).relative_to(self.root)

    def clear(self, folder: PurePosixPath, pattern: str) -> None:
        """Make the folder, and delete such files."""
        directory = self._data / folder
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        for stale in directory.glob(pattern):
            self._disk.unlink(stale)

    def finish(self, path: PurePosixPath) -> int:
        """Sync the file and the directories above it."""
        file = self._data / path
        descriptor = self._disk.open(file, os.O_RDONLY)
        try:
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)
        for folder in file.parents:
            self._disk.sync_directory(folder)
            if folder == self._data:
                break
        return self._disk.size(file)

    def unlink(self, path: PurePosixPath) -> None:
        """Delete a file."""
        self._disk.unlink(self._data / path)

    def find(self, prefix: str) -> Iterator[PurePosixPath]:
        """In all directories."""
        for path in self._data.rglob(f"{prefix}*.parquet"):
            yield self.below(str(path))

    def explain(self, text: str) -> str:
        """As it is."""
        return text


def split(place: str) -> tuple[str, str]:
    """The bucket and the prefix, which begins with a slash or is empty. Raises ValueError.

    >>> split("s3://hpc/lakes/one/"), split("s3://hpc")
    (('hpc', '/lakes/one'), ('hpc', ''))
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        expected = f"s3://BUCKET/PREFIX with {BUCKET_FORM}"
        raise ValueError(f"{place!r} is no place in an object store, expected {expected}")
    return match[1], match[2]
