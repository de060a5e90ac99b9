"""Blocks that a checkpoint overwrites, saved until it has ended.

DuckDB writes rows into blocks to which no header leads, but the blocks of its metadata in place: parts of 4 kB that
were free get new content, and the block a new checksum. A process that is killed within such a write, or a node that
loses its power, leaves a block that is half of each, and a file that cannot be opened. So these blocks are saved before
a checkpoint, and who opens the file next writes them back, unless a new header says that the checkpoint has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from barograph_agent.system.disk import DISK

BLOCKS_AT: Final = 12_288
"""Offset of block 0 in a file of DuckDB."""
HEADERS: Final = (8192, 4096)
"""Size and offset of its two headers, of which a checkpoint writes one."""
_NUMBER: Final = struct.Struct("<q")
_log = logging.getLogger(__name__)


class Undo:
    """The saved blocks of a file that DuckDB has open; belongs to the thread of the checkpoints. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._place = path.with_name(f"{path.name}.undo")
        # To close any descriptor of the file ends DuckDB's lock of it: this one is closed after DuckDB's.
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def save(self, blocks: Iterable[int], size: int) -> None:
        """Save blocks of so many bytes, durably."""
        part, checksum = self._place.with_name(f"{self._place.name}.part"), 1  # that of an empty file is 0
        reads = ((_NUMBER.pack(block), os.pread(self._file, size, BLOCKS_AT + block * size)) for block in blocks)
        # What is not in the file yet is not overwritten.
        saved = (number + content for number, content in reads if len(content) == size)
        try:
            with part.open("wb") as file:
                for piece in itertools.chain([os.pread(self._file, *HEADERS) + _NUMBER.pack(size)], saved):
                    checksum = zlib.crc32(piece, checksum)
                    file.write(piece)
                file.write(checksum.to_bytes(4, "little"))
            DISK.rename(part, self._place)
        except OSError:  # a full disk
            part.unlink(missing_ok=True)
            raise

    def forget(self) -> None:
        """Delete what was saved: the checkpoint has ended."""
        self._place.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, unless DuckDB has it open, as for a query that goes on: that would end its lock."""
        own, held = os.fstat(self._file), 0
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                held += os.path.samestat(descriptor.stat(), own)
        if held == 1:
            os.close(self._file)


def undo(path: Path) -> bool:
    """Write the saved blocks of a file back if its checkpoint has not ended; whether it had not. Raises OSError.

    Before DuckDB opens the file. Nothing is done where another process has it open.
    """
    if not (place := path.with_name(f"{path.name}.undo")).exists() or not path.exists():
        return False
    with path.open("r+b", buffering=0) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        saved = memoryview(place.read_bytes())
        if zlib.crc32(saved[:-4], 1) != int.from_bytes(saved[-4:], "little"):
            aside = place.rename(place.with_name(f"{place.name}.unreadable"))
            _log.error("the blocks of %s that were saved are damaged, and are not written back: %s", path, aside)
            return False
        is_due = saved[: HEADERS[0]] == os.pread(file.fileno(), *HEADERS)
        (size,) = _NUMBER.unpack_from(saved, HEADERS[0])
        step = _NUMBER.size + size
        for at in range(HEADERS[0] + _NUMBER.size, len(saved) - 4 if is_due else 0, step):
            (number,) = _NUMBER.unpack_from(saved, at)
            os.pwrite(file.fileno(), saved[at + _NUMBER.size : at + step], BLOCKS_AT + number * size)
        DISK.sync(file.fileno())
    place.unlink()
    return is_due
