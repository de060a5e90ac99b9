"""The journal: accepted messages, durable before they are acknowledged.

Acknowledgements do not depend on the database: a long commit or checkpoint delays no producer, and a database that has
lost its write-ahead log is restored from here. Messages are numbered 1, 2, 3 ..., never starting over. The database
stores the number of its last message, committed with the rows of that message.

A segment is a preallocated file named after the number of its first message. It holds groups one after the other:

    magic 4 bytes   crc 4   body bytes 4   messages 4   number of the first message 8
    body: the length of each message (4), then the messages themselves

The crc covers the rest of the header and the body. All numbers are little-endian. A group is written and synced as one;
an incomplete group ends its segment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from barograph_agent.system.system import SYSTEM, System

SEGMENT_BYTES: Final = 64 * 2**20
_MAGIC: Final = b"BJ01"
_HEADER: Final = struct.Struct("<4sIIIQ")
_LENGTH: Final = np.dtype("<u4")
_SUFFIX: Final = ".segment"
_OWNER: Final = "owner"
"""The name of the log, in a journal that is apart from it."""
_log = logging.getLogger(__name__)


class Journal:
    """One thread appends; another one may call `truncate`. A new process never appends to existing segments."""

    def __init__(self, directory: Path, segment_bytes: int = SEGMENT_BYTES, system: System = SYSTEM) -> None:
        """Open or create the directory. Raises OSError."""
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._disk = system.disk
        self._disk.make_directory(directory)
        # A segment must not be deleted while a group is written to it.
        self._lock = system.threads.lock()
        self._descriptor = -1
        self._end = 0
        self.last = 0
        """The number of the last message; the next one is numbered above it."""
        self.lost = 0
        """Messages that a replay has missed: they were acknowledged, and a segment is damaged or gone."""
        for path, first, _ in self._segments(0)[-1:]:
            self.last = first - 1 + sum(1 for _ in self._messages(path, first))
            self._sync(path)

    def _sync(self, segment: Path) -> None:
        """Make durable what was read: the process that has written it may have died before it did so."""
        descriptor = self._disk.open(segment, os.O_RDWR)
        try:
            self._disk.sync_data(descriptor)
        finally:
            self._disk.close(descriptor)

    @property
    def owner(self) -> str:
        """The log that has claimed it, empty for none. Raises OSError."""
        path = self.directory / _OWNER
        return self._disk.read(path).decode() if self._disk.exists(path) else ""

    def claim(self, name: str, *, is_apart: bool = True) -> None:
        """Let it be the journal of a log, apart from its database or beside it. Raises OSError, ValueError."""
        if found := self.owner:
            if found != name:
                raise ValueError(f"the journal {self.directory} belongs to the log {found}, expected {name}")
        elif self.size and is_apart:
            raise ValueError(f"the journal {self.directory} has no file {_OWNER}, expected one, or no messages")
        else:
            self._disk.replace(self.directory / _OWNER, name.encode())

    @property
    def first(self) -> int:
        """The number of the first message that it has; of the next one, if it has none."""
        return next((first for _, first, _ in self._segments(0)), self.last + 1)

    def append(self, frames: Sequence[bytes]) -> int:
        """Write and sync messages as one group; returns the number of the last one.

        Raises OSError, after which the group is not part of the journal and may be appended again.
        """
        lengths = np.array([len(frame) for frame in frames], _LENGTH)
        body = b"".join([lengths.tobytes(), *frames])
        tail = struct.pack("<IIQ", len(body), len(frames), self.last + 1)
        group = b"".join([_MAGIC, struct.pack("<I", zlib.crc32(body, zlib.crc32(tail))), tail, body])
        with self._lock:
            try:
                if self._descriptor < 0 or self._end + len(group) > self._segment_bytes:
                    self._begin_segment(len(group))
                written = 0
                while written < len(group):
                    written += self._disk.pwrite(self._descriptor, (memoryview(group)[written:],), self._end + written)
                self._disk.sync_data(self._descriptor)
            except OSError:
                # After a failed sync the content on disk is unknown: continue in a new segment.
                self.close()
                raise
            self._end += len(group)
            self.last += len(frames)
            return self.last

    def replay(self, after: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Numbers above `after` up to `last`, and their messages. A gap is logged, counted in `lost`, and skipped."""
        number = after
        for path, first, end in self._segments(last):
            if first > last or end <= number:
                continue
            if first > number + 1:
                _log.error("the journal lacks messages %d to %d; going on behind them", number + 1, first - 1)
                self.lost += first - 1 - number
            for found, frame in self._messages(path, first):
                if found > min(end, last):
                    break
                if found > number:
                    number = found
                    yield number, frame

    def truncate(self, number: int) -> None:
        """Delete the segments that hold nothing above `number`."""
        with self._lock:
            for path, _, last in self._segments(self.last):
                if last > number:
                    return
                if last == self.last:
                    self.close()
                self._disk.unlink(path)

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return sum(self._disk.size(path) for path, _, _ in self._segments(0))

    def close(self) -> None:
        """Close the present segment."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self._disk.close(self._descriptor)
            self._descriptor = -1

    def _begin_segment(self, at_least: int) -> None:
        self.close()
        path = self.directory / f"{self.last + 1:020}{_SUFFIX}"
        # A segment of this name holds only a group that failed.
        self._disk.unlink(path, missing_ok=True)
        self._descriptor = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._end = 0
        try:
            # Preallocation reports a full disk here, and a sync need not write the file size.
            self._disk.reserve(self._descriptor, max(self._segment_bytes, at_least))
            self._disk.sync_directory(self.directory)
        except OSError:
            self._disk.unlink(path)
            raise

    def _segments(self, last: int) -> list[tuple[Path, int, int]]:
        """The segments, with the numbers of their first and last messages; `last` is that of the newest one."""
        names = [name for name in self._disk.names(self.directory) if name.endswith(_SUFFIX)]
        found = sorted((int(name.removesuffix(_SUFFIX)), self.directory / name) for name in names)
        lasts = [*(first - 1 for first, _ in found), last][1:]
        return [(path, first, end) for (first, path), end in zip(found, lasts, strict=True)]

    def _messages(self, path: Path, number: int) -> Iterator[tuple[int, bytes]]:
        """Numbers and messages of a segment that begins with message `number`, up to a group that is incomplete."""
        segment = self._disk.open(path, os.O_RDONLY)
        try:
            at = 0
            while len(header := self._disk.pread(segment, _HEADER.size, at)) == _HEADER.size:
                magic, crc, size, count, first = _HEADER.unpack(header)
                if magic != _MAGIC or first != number:
                    return
                body = self._disk.pread(segment, size, at + _HEADER.size)
                at += _HEADER.size + size
                if len(body) != size or zlib.crc32(body, zlib.crc32(header[8:])) != crc:
                    _log.warning("segment %s ends with an incomplete group, from message %d on", path.name, number)
                    return
                lengths = np.frombuffer(body, _LENGTH, count)
                start = lengths.nbytes
                for length in lengths.tolist():
                    yield number, body[start : start + length]
                    number += 1
                    start += length
        finally:
            self._disk.close(segment)
