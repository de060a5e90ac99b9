"""The spool: an outbox in files that survives SIGKILL of its owner and counts what it drops.

A spool is a directory of segments `<first seq>.seg`. A segment is a sequence of entries

    length u32 | crc32 u32 | kind u8 | rows u32 | payload        (little-endian; crc over kind, rows, payload)

of kind MESSAGE (one encoded message) or MARK (the producer's state). Messages are valid only if a mark follows them:
`commit` writes the mark and calls fsync, and opening a spool truncates everything after the last mark. A producer that
stores its read position in each mark therefore loses and repeats nothing. Each segment begins with a copy of the last
mark of the segment before it, so that segments of acknowledged messages can be deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from barograph_agent.deliver.outbox import Acked, Outbox
from barograph_agent.system.disk import DISK, Disk

_HEAD: Final = struct.Struct("<II")
_BODY: Final = struct.Struct("<BI")
_MARK: Final = 0
_MESSAGE: Final = 1
_LIMIT: Final = 64 * 2**20
_RENUMBERED: Final = 64
"""Messages per commit where numbers have to be changed: they are in memory meanwhile."""
SEGMENT_BYTES: Final = 4 * 2**20


class SpoolError(Exception):
    """A spool that cannot be used. The text names the directory, what was found and what was expected."""


class _DroppedFile(NamedTuple):
    """Content of the file `dropped`; versions before wrote no pieces."""

    seq: int
    rows: int
    reason: str
    pieces: Sequence[tuple[int, int]] = ()


class SegmentPlace(NamedTuple):
    """Location of a message: offset and length of its payload in a segment, in bytes."""

    segment: int
    at: int
    length: int


class Spool(Outbox[SegmentPlace]):
    """The outbox of one stream, in `directory`, limited to about `cap_bytes` by dropping the oldest segments.

    One process owns a spool at a time. Raises SpoolError if another process does.
    """

    def __init__(
        self,
        directory: Path,
        cap_bytes: int = 256 * 2**20,
        segment_bytes: int = SEGMENT_BYTES,
        disk: Disk = DISK,
    ) -> None:
        super().__init__()
        self._disk = disk
        self.directory = directory
        self.mark = b""
        self._cap = cap_bytes
        self._segment_bytes = min(segment_bytes, max(cap_bytes // 4, 1))
        self._sizes: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._committed = 0
        """Bytes of the current segment up to the end of its last mark."""
        self._waiting: list[tuple[tuple[int, SegmentPlace], bytes]] = []
        """Rows, location and content of messages put since the last commit."""
        self._fresh: dict[int, bytes] = {}
        """Messages of the last commit by number: they are sent next, without reading them back."""
        disk.make_directory(directory, parents=True)
        self._lock = disk.open(directory / "lock", os.O_RDWR | os.O_CREAT)
        try:
            disk.lock(self._lock)
        except OSError as error:
            disk.close(self._lock)
            raise SpoolError(f"spool {directory}: in use by another process, expected one owner") from error
        self._is_cached = False
        """Whether the last mark may not be on disk: the process before may have died between writing and syncing it."""
        self._unsaved = False
        """Whether the file `dropped` lacks something."""
        self._is_full = False
        """Whether it does because the disk was full."""
        self._load_dropped()
        self._recover()
        self._recovered: int | None = self.last_seq
        """The last number at the start; None once the collector's is known."""

    @property
    def next_seq(self) -> int:
        """The number the next message must carry."""
        return self.last_seq + len(self._waiting) + 1

    @property
    def rows(self) -> int:
        """Rows of the messages still held."""
        return sum(rows for rows, _ in self._held.values())

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes.values())

    def put(self, rows: int, frame: bytes) -> None:
        """Append one message, which becomes valid with the next `commit`."""
        at = self._sizes[self._current] + _HEAD.size + _BODY.size
        self._write(_MESSAGE, rows, frame)
        self._waiting.append(((rows, SegmentPlace(self._current, at, len(frame))), frame))

    def commit(self, mark: bytes) -> None:
        """Make everything put so far durable together with the producer's state; then enforce the cap."""
        self._write(_MARK, 0, mark)
        self._sync()
        self.mark = mark
        self._fresh = dict(enumerate((frame for _, frame in self._waiting), self.last_seq + 1))
        self._hold([held for held, _ in self._waiting])
        self._waiting = []
        self._committed = self._sizes[self._current]
        if self._committed >= self._segment_bytes and self._current <= self.last_seq:
            # If the disk is full this segment grows instead: a failure here must not undo the commit.
            with contextlib.suppress(OSError):
                self._open_segment()
        self._save_dropped()
        self._enforce_cap()

    def rollback(self) -> None:
        """Discard what was put since the last commit, as after an error of the disk."""
        self._waiting = []
        self._sizes[self._current] = self._committed
        with contextlib.suppress(OSError):
            self._disk.resize(self._files[self._current], self._committed)

    def get(self, seq: int) -> bytes:
        """The message with this number."""
        if seq in self._fresh:
            return self._fresh[seq]
        place = self._held[seq][1]
        return self._disk.pread(self._files[place.segment], place.length, place.at)

    def go_above(self, acked: int, renumber: Callable[[bytes, int], bytes]) -> bool:
        """The end of the spool is lost, if the collector has more than was found: messages put since then have numbers
        that it takes for those of messages it has.
        """
        if self._recovered is None or acked <= self._recovered:
            self._recovered = None
            return False
        before, self.last_seq = self.last_seq, max(self.last_seq, acked) + 1
        try:
            # Behind a gap: if this process is killed meanwhile, those before it are not delivered too.
            self._open_segment()
        except OSError:
            self.last_seq = before
            raise
        repeated = [seq for seq in self._held if seq > self._recovered]
        for start in range(0, len(repeated), _RENUMBERED):
            part = repeated[start : start + _RENUMBERED]
            try:
                for seq in part:
                    if seq in self._held:  # not dropped for the cap
                        self.put(self._held[seq][0], renumber(self.get(seq), self.next_seq))
                self.commit(self.mark)
            except OSError:
                self.rollback()
                raise
            for seq in part:
                self._held.pop(seq, None)
        self._recovered = None
        return True

    def ack(self, seq: int) -> Acked:
        """Remove everything up to seq, and empty segments."""
        had_dropped = bool(self._pieces)
        acked = super().ack(seq)
        if had_dropped and not self._pieces:
            self._disk.unlink(self.directory / "dropped", missing_ok=True)
        if not self._held:
            self._fresh = {}
        for segment, following in pairwise(list(self._sizes)):
            if following <= self.first_seq:
                self._delete(segment)
        return acked

    def close(self) -> None:
        """Close the files, which stay on disk."""
        for file in self._files.values():
            self._disk.close(file)
        self._files.clear()
        self._disk.close(self._lock)

    def remove(self) -> None:
        """Delete everything, and close."""
        # The lock is deleted last: no other process can open a partly deleted spool.
        for name in sorted(self._disk.names(self.directory), key=lambda name: name == "lock"):
            self._disk.unlink(self.directory / name, missing_ok=True)
        self._disk.remove_directory(self.directory)
        self.close()

    def _write(self, kind: int, rows: int, payload: bytes) -> None:
        at = self._sizes[self._current]
        self._sizes[self._current] = self._write_entry(self._files[self._current], at, kind, rows, payload)

    def _path(self, segment: int) -> Path:
        return self.directory / f"{segment:012d}.seg"

    def _hold(self, places: list[tuple[int, SegmentPlace]]) -> None:
        self._held.update(enumerate(places, self.last_seq + 1))
        self.last_seq += len(places)

    def _open_segment(self) -> None:
        segment = self.last_seq + 1
        path = self._path(segment)
        file = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            size = self._write_entry(file, 0, _MARK, 0, self.mark)
            self._disk.sync(file)
        except OSError:
            self._disk.close(file)
            self._disk.unlink(path)
            raise
        self._current, self._committed, self._is_cached = segment, size, False
        self._files[segment], self._sizes[segment] = file, size

    def _sync(self) -> None:
        self._disk.sync(self._files[self._current])
        self._is_cached = False

    def _delete(self, segment: int) -> None:
        if self._is_cached:
            self._sync()
        self._disk.close(self._files.pop(segment))
        del self._sizes[segment]
        self._disk.unlink(self._path(segment))

    def _enforce_cap(self) -> None:
        while self.size > self._cap and len(self._sizes) > 1:
            segment, following = list(self._sizes)[:2]
            if self.first_seq < following:
                self._drop(following - 1, "spool-cap")
            if self._unsaved and not self._is_full:
                return  # until it is known on disk how many rows are dropped
            self._delete(segment)
            # Where the disk was full there is room now.
            self._save_dropped()

    def _load_dropped(self) -> None:
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            stored = msgspec.json.decode(self._disk.read(self.directory / "dropped"), type=_DroppedFile)
            self._pieces = list(stored.pieces) or [(stored.seq, stored.rows)]
            self._reason = stored.reason

    def _recover(self) -> None:
        paths = [self.directory / name for name in self._disk.names(self.directory) if name.endswith(".seg")]
        for path in paths:
            self._current = int(path.stem)
            self._files[self._current] = self._disk.open(path, os.O_RDWR)
            if path != paths[0] and self._current != self.last_seq + 1:
                self._drop(self._current - 1, "spool-corrupt")
            self.last_seq = self._current - 1
            waiting: list[tuple[int, SegmentPlace]] = []
            self._committed = 0
            for at, kind, rows, payload in self._entries(self._files[self._current]):
                if kind == _MESSAGE:
                    waiting.append((rows, SegmentPlace(self._current, at, len(payload))))
                    continue
                self.mark = payload
                self._hold(waiting)
                waiting, self._committed = [], at + len(payload)
            self._disk.resize(self._files[self._current], self._committed)
            self._sizes[self._current] = self._committed
        if not paths:
            self._open_segment()
        elif self._committed == 0:
            # Killed while opening this segment: it needs the mark, on disk, before older segments may be deleted.
            self._write(_MARK, 0, self.mark)
            self._sync()
            self._committed = self._sizes[self._current]
        else:
            self._is_cached = True
        if self._pieces:
            # Killed after recording the drop and before deleting the segment.
            self._remove(self._pieces[-1][0])

    def _drop(self, seq: int, reason: str) -> None:
        super()._drop(seq, reason)
        self._unsaved = True
        self._save_dropped()

    def _save_dropped(self) -> None:
        """Store what was dropped. If the disk is full or fails, the next commit tries again."""
        if not self._unsaved or self.dropped is None:
            return
        stored = _DroppedFile(*self.dropped, self._pieces)
        try:
            self._disk.replace(self.directory / "dropped", msgspec.json.encode(stored))
        except OSError as error:
            self._is_full = error.errno == errno.ENOSPC
        else:
            self._unsaved = False

    def _write_entry(self, file: int, at: int, kind: int, rows: int, payload: bytes) -> int:
        """Write one entry at offset `at`; returns the offset of its end."""
        body = _BODY.pack(kind, rows)
        head = _HEAD.pack(len(body) + len(payload), zlib.crc32(payload, zlib.crc32(body))) + body
        end = at + len(head) + len(payload)
        at += self._disk.pwrite(file, (head, payload), at)
        # A disk without room for all of it accepts a part, and the next write raises.
        while at < end:
            at += self._disk.pwrite(file, ((head + payload)[at - end :],), at)
        return end

    def _entries(self, file: int) -> Iterator[tuple[int, int, int, bytes]]:
        """Entries of a segment as (offset of the payload, kind, rows, payload), up to the first incomplete one."""
        at = 0
        while True:
            head = self._disk.pread(file, _HEAD.size, at)
            if len(head) < _HEAD.size:
                return
            length, crc = _HEAD.unpack(head)
            if not _BODY.size <= length <= _LIMIT:
                return
            body = self._disk.pread(file, length, at + _HEAD.size)
            if len(body) < length or zlib.crc32(body) != crc:
                return
            kind, rows = _BODY.unpack_from(body)
            yield at + _HEAD.size + _BODY.size, kind, rows, body[_BODY.size :]
            at += _HEAD.size + length
