"""Where the files of the lake are: below a directory, or in an object store."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import duckdb
from pyarrow import fs

from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM
from barograph_collector.storage.days.extensions import LakeError

DATA: Final = "data"
"""The directory of the files in that of the lake."""
MARKS: Final = "marks"
"""The directory of the marks below it: a file for each sealed period of each log, which is written last."""
MARKER: Final = "barograph-lake"
"""A file beside `data`: without it a directory or a bucket has no lake."""
SCHEME: Final = "s3://"
BUCKET_FORM: Final = "a bucket of 3 to 63 lower-case letters, digits, dots and hyphens"
_PLACE: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9_.=+-]+)*)/?")
_MARKS_NAME: Final = re.compile(rf"{MARKS}/day=([0-9-]+)/([0-9a-z.]+)-(\d+)-(\d+)\.parquet")


class DataPath:
    """The files of a lake, named by their paths below its root: those in a directory.

    lake: for people: the directory, or bucket and prefix. root: as SQL has it. All methods raise OSError and LakeError.
    """

    def __init__(self, directory: Path, disk: Disk = SYSTEM.disk) -> None:
        """directory: of the lake."""
        self.lake = str(directory.absolute())
        self.root = f"{self.lake}/{DATA}"
        self._disk = disk
        self._files: fs.FileSystem = fs.LocalFileSystem()

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a connection read the files; before its access to files is restricted."""

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a connection that was loaded have the present credentials."""

    def refresh(self) -> None:
        """Read credentials again."""

    def check(self, known: bool) -> None:
        """Raises LakeError where the lake is not there. known: whether there has been one."""
        if known and not self._has(f"{self._key}/{MARKER}"):
            raise LakeError(f"the lake {self.lake} has no {MARKER}, expected it: is its file system mounted?")

    def make(self) -> None:
        """Create what `check` expects, unless it is there."""
        if not self._has(f"{self._key}/{MARKER}"):
            self._put(f"{self._key}/{MARKER}", f"A lake of Barograph: its files are below {DATA}.\n".encode())

    def at(self, path: PurePosixPath | str) -> str:
        """A file as SQL has it."""
        return f"{self.root}/{path}"

    def below(self, file: str) -> str:
        """The path of a file that SQL has named."""
        return file.removeprefix(f"{self.root}/")

    def names(self, folder: str = "") -> Iterator[str]:
        """The paths of all files below a folder."""
        base = f"{self._key}/{DATA}"
        with self._explained():
            selector = fs.FileSelector(f"{base}/{folder}".rstrip("/"), recursive=True, allow_not_found=True)
            for info in self._files.get_file_info(selector):
                if info.type is fs.FileType.File:
                    yield info.path.removeprefix(f"{base}/")

    def read(self, path: str) -> bytes:
        """A small file; empty for none."""
        key = f"{self._key}/{DATA}/{path}"
        if not self._has(key):
            return b""
        with self._explained(), self._files.open_input_stream(key) as stream:
            return bytes(stream.read())

    def put(self, path: str, content: bytes) -> None:
        """Write a small file, durably and as a whole."""
        self._put(f"{self._key}/{DATA}/{path}", content)

    def begin(self, path: str) -> str:
        """Where to write a file, as SQL has it, before it is finished."""
        part = Path(f"{self.root}/{path}.part")
        self._disk.make_directory(part.parent, parents=True)
        return str(part)

    def finish(self, path: str) -> int:
        """Let a file that was written have its name, durably; returns its size in bytes."""
        file = Path(f"{self.root}/{path}")
        self._disk.rename(file.with_name(f"{file.name}.part"), file)
        for folder in file.parents:
            self._disk.sync_directory(folder)
            if str(folder) == self.root:
                break
        return self._disk.size(file)

    def unlink(self, path: str) -> None:
        """Delete a file."""
        with self._explained(), contextlib.suppress(FileNotFoundError):
            self._files.delete_file(f"{self._key}/{DATA}/{path}")

    @property
    def free_bytes(self) -> int | None:
        """Free space for files; None where that is unknown."""
        return self._disk.free_bytes(Path(self.lake))

    def explain(self, text: str) -> str:
        """An error that DuckDB gave for a file, in words for an operator."""
        return text

    @property
    def _key(self) -> str:
        """The lake as pyarrow has it."""
        return self.lake.removeprefix(SCHEME)

    def _has(self, key: str) -> bool:
        with self._explained():
            return self._files.get_file_info(key).type is fs.FileType.File

    def _put(self, key: str, content: bytes) -> None:
        self._disk.make_directory(Path(key).parent, parents=True)
        self._disk.replace(Path(key), content)
        self._disk.sync_directory(Path(key).parent)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        yield


class MarksName(NamedTuple):
    """The name of the file of marks of a sealed period. day: as YYYY-MM-DD."""

    log: str
    first: int
    last: int
    day: str

    @property
    def path(self) -> str:
        """Below the data path."""
        return f"{MARKS}/day={self.day}/{self.log}-{self.first}-{self.last}.parquet"


def sealed_periods(data: DataPath) -> list[MarksName]:
    """The periods of which the lake has all rows, by log, in the order of their offsets. Raises as DataPath."""
    matches = (_MARKS_NAME.fullmatch(path) for path in data.names(MARKS))
    return sorted(MarksName(match[2], int(match[3]), int(match[4]), match[1]) for match in matches if match)


def last_sealed(data: DataPath, log: str) -> int:
    """The offset up to which the lake has the rows of a log, 0 for none. Raises as DataPath."""
    return max((period.last for period in sealed_periods(data) if period.log == log), default=0)


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
