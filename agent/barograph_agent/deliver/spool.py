"""The spool: an outbox in files that survives SIGKILL of its owner and says what it had to drop.

A spool is a directory of segments `<first seq>.seg`. A segment is a row of entries

    length u32 | crc32 u32 | kind u8 | rows u32 | payload        (little-endian; crc over kind, rows, payload)

of kind MESSAGE (one encoded message) or MARK (the producer's own state). Messages count only once a mark follows
them: `commit` writes the mark and calls fsync, and opening a spool cuts off whatever stands behind the last mark.
So a producer that notes in each mark how far it had read its source loses nothing and repeats nothing.
Each segment begins with a copy of the mark before it, so that segments of acknowledged messages can go.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from barograph_agent.deliver.outbox import Dropped

_HEAD: Final = struct.Struct("<II")
_BODY: Final = struct.Struct("<BI")
_MARK: Final = 0
_MESSAGE: Final = 1
_LIMIT: Final = 64 * 2**20
SEGMENT_BYTES: Final = 4 * 2**20


class SpoolError(Exception):
    """A spool that cannot be used. The text names the directory, what was found and what was expected."""


class _Place(NamedTuple):
    segment: int
    at: int
    length: int
    rows: int


class Spool:
    """The outbox of one stream, in `directory`, of at most about `cap_bytes`; the oldest segment goes first.

    One process owns a spool at a time (SpoolError otherwise).
    """

    def __init__(self, directory: Path, cap_bytes: int = 256 * 2**20, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self.mark = b""
        self._cap = cap_bytes
        self._segment_bytes = min(segment_bytes, max(cap_bytes // 4, 1))
        self._places: OrderedDict[int, _Place] = OrderedDict()
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._waiting: list[_Place] = []
        self._committed = 0
        self._last_seq = 0
        self._files: dict[int, int] = {}
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise SpoolError(f"spool {directory}: in use by another process, expected one owner") from error
        self._dropped = self._load_dropped()
        self._recover()

    @property
    def next_seq(self) -> int:
        """The number the next message must carry."""
        return self._last_seq + len(self._waiting) + 1

    @property
    def first_seq(self) -> int:
        """The lowest committed number still held."""
        return next(iter(self._places), self._last_seq + 1)

    @property
    def last_seq(self) -> int:
        """The highest committed number."""
        return self._last_seq

    @property
    def rows(self) -> int:
        """Rows of the messages still held."""
        return sum(place.rows for place in self._places.values())

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes.values())

    @property
    def dropped(self) -> Dropped | None:
        """What the cap has pushed out and no acknowledgement has passed, or None."""
        return self._dropped

    def put(self, rows: int, frame: bytes) -> None:
        """Hold one more message; it counts from the next `commit` on."""
        at = self._sizes[self._current] + _HEAD.size + _BODY.size
        self._write(_MESSAGE, rows, frame)
        self._waiting.append(_Place(self._current, at, len(frame), rows))

    def commit(self, mark: bytes) -> None:
        """Make everything put so far durable together with the producer's state; then keep to the cap."""
        self._write(_MARK, 0, mark)
        os.fsync(self._files[self._current])
        self.mark = mark
        self._take(self._waiting)
        self._waiting = []
        self._committed = self._sizes[self._current]
        if self._committed >= self._segment_bytes and self._current <= self._last_seq:
            # Where the disk is full this segment grows: what is committed must not be undone by what comes after.
            with contextlib.suppress(OSError):
                self._open_segment()
        self._keep_to_cap()

    def rollback(self) -> None:
        """Forget what was put since the last commit: for a producer whose disk was full half-way."""
        self._waiting = []
        self._sizes[self._current] = self._committed
        with contextlib.suppress(OSError):
            os.ftruncate(self._files[self._current], self._committed)

    def get(self, seq: int) -> bytes:
        """The message with this number."""
        place = self._places[seq]
        return os.pread(self._files[place.segment], place.length, place.at)

    def rows_in(self, seq: int) -> int:
        """Rows of the message with this number."""
        return self._places[seq].rows

    def ack(self, seq: int) -> int:
        """Forget everything up to seq; returns how many rows that was."""
        rows = 0
        while self._places and next(iter(self._places)) <= seq:
            rows += self._places.popitem(last=False)[1].rows
        if self._dropped and self._dropped.seq <= seq:
            self._dropped = None
            (self.directory / "dropped").unlink(missing_ok=True)
        held = next(iter(self._places.values()), None)
        for segment in list(self._sizes):
            if segment == self._current or (held is not None and segment >= held.segment):
                break
            self._remove(segment)
        return rows

    def close(self) -> None:
        """Let go of the files; they stay where they are."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        os.close(self._lock)

    def remove(self) -> None:
        """Delete everything, and close."""
        # The lock goes last, or somebody could take over what is half gone.
        for path in sorted(self.directory.iterdir(), key=lambda path: path.name == "lock"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()
        self.close()

    def _write(self, kind: int, rows: int, payload: bytes) -> None:
        at = self._sizes[self._current]
        self._sizes[self._current] = _write_entry(self._files[self._current], at, kind, rows, payload)

    def _path(self, segment: int) -> Path:
        return self.directory / f"{segment:012d}.seg"

    def _take(self, places: list[_Place]) -> None:
        for place in places:
            self._last_seq += 1
            self._places[self._last_seq] = place

    def _open_segment(self) -> None:
        segment = self._last_seq + 1
        path = self._path(segment)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            size = _write_entry(file, 0, _MARK, 0, self.mark)
            os.fsync(file)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        self._current, self._committed = segment, size
        self._files[segment], self._sizes[segment] = file, size

    def _remove(self, segment: int) -> None:
        os.close(self._files.pop(segment))
        del self._sizes[segment]
        self._path(segment).unlink()

    def _keep_to_cap(self) -> None:
        while self.size > self._cap and len(self._sizes) > 1:
            segment = next(iter(self._sizes))
            last = 0
            for seq, place in self._places.items():
                if place.segment != segment:
                    break
                last = seq
            if last:
                self._give_up(last, "spool-cap")
            self._remove(segment)

    def _load_dropped(self) -> Dropped | None:
        try:
            return msgspec.json.decode((self.directory / "dropped").read_bytes(), type=Dropped)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _recover(self) -> None:
        paths = sorted(self.directory.glob("*.seg"))
        for path in paths:
            self._current = int(path.stem)
            self._files[self._current] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if path != paths[0] and self._current != self._last_seq + 1:
                self._give_up(self._current - 1, "spool-corrupt")
            self._last_seq = self._current - 1
            waiting: list[_Place] = []
            self._committed = 0
            for at, kind, rows, payload in _entries(self._files[self._current]):
                if kind == _MESSAGE:
                    waiting.append(_Place(self._current, at, len(payload), rows))
                    continue
                self.mark = payload
                self._take(waiting)
                waiting, self._committed = [], at + len(payload)
            os.ftruncate(self._files[self._current], self._committed)
            self._sizes[self._current] = self._committed
        if not paths:
            self._open_segment()
        elif self._committed == 0:
            # Killed while it opened this segment: the mark must be in it before those that have the mark may go.
            self._write(_MARK, 0, self.mark)
            self._committed = self._sizes[self._current]
        if self._dropped:
            # Killed between noting this and deleting the segment.
            while self._places and self.first_seq <= self._dropped.seq:
                self._places.popitem(last=False)

    def _give_up(self, seq: int, reason: str) -> None:
        """Drop every message up to seq, and remember that."""
        rows = self._dropped.rows if self._dropped else 0
        while self._places and next(iter(self._places)) <= seq:
            rows += self._places.popitem(last=False)[1].rows
        self._dropped = Dropped(seq, rows, reason)
        # Where the disk is full, making room goes before remembering it beyond this process.
        with contextlib.suppress(OSError):
            replace_file(self.directory / "dropped", msgspec.json.encode(self._dropped))


def _write_entry(file: int, at: int, kind: int, rows: int, payload: bytes) -> int:
    body = _BODY.pack(kind, rows) + payload
    data = _HEAD.pack(len(body), zlib.crc32(body)) + body
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
    return at


def _entries(file: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Entries of a segment as (payload's place, kind, rows, payload), up to the first that is not whole."""
    at = 0
    while True:
        head = os.pread(file, _HEAD.size, at)
        if len(head) < _HEAD.size:
            return
        length, crc = _HEAD.unpack(head)
        if not _BODY.size <= length <= _LIMIT:
            return
        body = os.pread(file, length, at + _HEAD.size)
        if len(body) < length or zlib.crc32(body) != crc:
            return
        kind, rows = _BODY.unpack_from(body)
        yield at + _HEAD.size + _BODY.size, kind, rows, body[_BODY.size :]
        at += _HEAD.size + length


def replace_file(path: Path, data: bytes) -> None:
    """Give `path` this content such that at any instant, power cuts included, it has the old or the new."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
