"""The journal: accepted messages, durable before they are acknowledged.

It makes an acknowledgement independent of the database: a long commit or checkpoint delays no producer, and a database
that has lost its write-ahead log is restored from here. Messages are numbered 1, 2, 3 ..., never starting over; the
database stores the number of the last one in it, committed with the rows of that message.

A segment is a file named after the number of its first message, preallocated, holding groups one after the other:

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
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

SEGMENT_BYTES: Final = 64 * 2**20
_MAGIC: Final = b"BJ01"
_HEADER: Final = struct.Struct("<4sIIIQ")
_LENGTH: Final = np.dtype("<u4")
_SUFFIX: Final = ".segment"
_log = logging.getLogger(__name__)


class JournalRecord(NamedTuple):
    """One message and its number."""

    number: int
    frame: bytes


class Journal:
    """One thread appends; another one may call `forget`. Existing segments are never appended to by a new process."""

    def __init__(self, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open or create the directory. Raises OSError."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        directory.mkdir(mode=0o700, exist_ok=True)
        # A segment must not be deleted while a group is written to it.
        self._lock = threading.Lock()
        self._descriptor = -1
        self._end = 0
        self.last = max((last for _, last in self._spans()), default=0)

    def start_at(self, number: int) -> None:
        """Number the next message above `number` and above all messages in the journal."""
        self.last = max(self.last, number)

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
                _write_all(self._descriptor, group, self._end)
                os.fdatasync(self._descriptor)
            except OSError:
                # After a failed sync the content on disk is unknown: continue in a new segment.
                self._close_segment()
                raise
            self._end += len(group)
            self.last += len(frames)
            return self.last

    def replay(self, after: int, last: int) -> Iterator[JournalRecord]:
        """The messages with numbers above `after` up to `last`. A gap between segments is logged and skipped."""
        number = after
        segments = [(first, path) for first, path in self._segments() if first <= last]
        ends = [*(first - 1 for first, _ in segments), last][1:]
        for (first, path), end in zip(segments, ends, strict=True):
            if end <= number:
                continue
            if first > number + 1:
                _log.error("the journal lacks messages %d to %d; going on behind them", number + 1, first - 1)
            for record in _records(path, first, end):
                if record.number > number:
                    number = record.number
                    yield record

    def forget(self, number: int) -> None:
        """Delete the segments that hold nothing above `number`."""
        with self._lock:
            segments = self._segments()
            lasts = [*(first - 1 for first, _ in segments), self.last][1:]
            for (_, path), last in zip(segments, lasts, strict=True):
                if last > number:
                    return
                if last == self.last:
                    self._close_segment()
                path.unlink()

    @property
    def bytes(self) -> int:
        """The size of all segments."""
        return sum(path.stat().st_size for _, path in self._segments())

    def close(self) -> None:
        """Close the segment."""
        self._close_segment()

    def _begin_segment(self, at_least: int) -> None:
        self._close_segment()
        path = self._directory / f"{self.last + 1:020}{_SUFFIX}"
        # A segment of this name holds only a group that failed.
        path.unlink(missing_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._end = 0
        try:
            # Preallocation reports a full disk here, and a sync need not write the file size.
            os.posix_fallocate(self._descriptor, 0, max(self._segment_bytes, at_least))
            _sync_directory(self._directory)
        except OSError:
            path.unlink()
            raise

    def _close_segment(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _segments(self) -> list[tuple[int, Path]]:
        return sorted((int(path.stem), path) for path in self._directory.glob(f"*{_SUFFIX}"))

    def _spans(self) -> Iterator[tuple[int, int]]:
        """First and last number of each segment; last is first - 1 where it holds nothing."""
        for first, path in self._segments():
            last = first - 1
            for number, count, _ in _groups(path, first):
                last = number + count - 1
            yield first, last


def _records(path: Path, first: int, last: int) -> Iterator[JournalRecord]:
    """The messages of a segment that begins with number `first`, up to `last`."""
    for number, count, body in _groups(path, first):
        lengths = np.frombuffer(body, _LENGTH, count)
        place = lengths.nbytes
        for position, length in enumerate(lengths.tolist(), number):
            if position > last:
                return
            yield JournalRecord(position, body[place : place + length])
            place += length
        if number + count > last:
            return


def _groups(path: Path, first: int) -> Iterator[tuple[int, int, bytes]]:
    """Number of the first message, messages and body of each whole group."""
    with path.open("rb") as segment:
        while len(header := segment.read(_HEADER.size)) == _HEADER.size:
            magic, crc, size, count, number = _HEADER.unpack(header)
            if magic != _MAGIC or number != first:
                return
            body = segment.read(size)
            if len(body) != size or zlib.crc32(body, zlib.crc32(header[8:])) != crc:
                _log.warning("segment %s ends with a group that is not whole, from message %d on", path.name, first)
                return
            yield number, count, body
            first += count


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
