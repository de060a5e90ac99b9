"""What the kernel shows of this node and its processes, in /proc and /sys.

Processes that have ended are not visible, those of other users only in part.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import resource
import stat
from collections.abc import Iterator
from glob import glob
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

_MOST_BYTES: Final = 2**16
_PAGE_BYTES: Final = 4096
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_MAX_MAPS_BYTES: Final = 2**20
"""Of the list of what a process has mapped."""
MAX_OUTPUTS: Final = 4096
"""Processes whose outputs are looked for."""
MAX_DESCRIPTORS: Final = 32
"""Descriptors of a process that are looked at for it, those with the lowest numbers: logs are opened early."""
MAX_ALL_DESCRIPTORS: Final = 2**13
"""Likewise of all processes: 2 us each."""
MAX_KEPT: Final = 2048
"""Files that stay open."""
MAX_MATCHES: Final = 16
MAX_NUMBER: Final = 2**53
"""Exact as a float; drivers show -1 as 2**64 - 1."""
_NUMBER_BYTES: Final = 64
_NUMBER: Final = re.compile(rb"-?[0-9]+(\.[0-9]+)?")
UNCERTAIN: Final = -2
"""No start time: whether there is such a process cannot be told."""
_GONE: Final = (errno.ENOENT, errno.ESRCH)
_HIDDEN: Final = (errno.EACCES, errno.EPERM)


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it may: each ring and each connection takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Processes:
    """Processes by their ids."""

    root = ""
    """What precedes /proc and /sys."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}
        """Descriptors of files that stay open; -1 before the first look."""

    def __del__(self) -> None:
        for file in list(self._kept):
            self.forget(file)

    def own(self) -> int:
        """The id of this process."""
        return os.getpid()

    def born(self, pid: int) -> int:
        """Start time of process `pid`, in clock ticks since boot; -1 if there is no such process.

        UNCERTAIN where that cannot be told, as for want of a descriptor.
        """
        try:
            text = self._content(f"/proc/{pid}/stat", _PAGE_BYTES)
        except OSError as error:
            return -1 if error.errno in _GONE else UNCERTAIN
        # The command name may contain spaces and brackets; the other fields follow the last bracket.
        fields = text.rpartition(b")")[2].split()
        return -1 if fields[0] == b"Z" else int(fields[19])

    def environment(self, pid: int) -> dict[str, str]:
        """The initial environment of a process; empty if it is not visible."""
        return dict(word.partition("=")[::2] for word in self._words(pid, "environ"))

    def command(self, pid: int) -> list[str]:
        """The command line of a process; empty if it is not visible."""
        return self._words(pid, "cmdline")

    def any_with(self, variable: str, value: str) -> bool:
        """Whether a process was started with this variable in its environment.

        Raises OSError where that cannot be told, as for want of a descriptor.
        """
        entry = os.fsencode(f"{variable}={value}")
        for path in Path(f"{self.root}/proc").glob("[0-9]*/environ"):
            try:
                if entry in path.read_bytes().split(b"\0"):
                    return True
            except OSError as error:
                if error.errno not in (*_GONE, *_HIDDEN):
                    raise
        return False

    def place(self, pid: int, name: str) -> Path:
        """Where something of a process is, such as its exe or cwd."""
        return Path(f"{self.root}/proc/{pid}/{name}")

    def show(self, file: str, most: int = _MOST_BYTES) -> bytes:
        """The beginning of a file such as /proc/stat; empty if it is missing or not for this process."""
        try:
            return self._content(file, most)
        except OSError:
            return b""

    def _content(self, file: str, most: int) -> bytes:
        if file not in self._kept:
            return b"".join(self._pieces(file, most))
        if self._kept[file] < 0:
            self._kept[file] = os.open(self.root + file, _FLAGS)
        return os.pread(self._kept[file], min(most, _PAGE_BYTES), 0)

    def keep(self, file: str) -> None:
        """Let a file of at most a page, such as /proc/PID/stat, stay open: a look is then one call of the kernel."""
        if len(self._kept) < MAX_KEPT:
            self._kept.setdefault(file, -1)

    def forget(self, file: str) -> None:
        """Close a file that is kept."""
        if (descriptor := self._kept.pop(file, -1)) >= 0:
            os.close(descriptor)

    def number(self, file: str) -> float:
        """The first number in a file of /sys, as in `90049@1675489372.7`, `100 Gb/sec (4X EDR)` or `ue: 0`.

        NaN where there is none from 0 to MAX_NUMBER. The file stays open.
        """
        self.keep(file)
        try:
            found = _NUMBER.search(self._content(file, _NUMBER_BYTES))
        except OSError:
            return math.nan
        number = float(found[0]) if found is not None else math.nan
        return number if 0 <= number <= MAX_NUMBER else math.nan

    def matching(self, pattern: str) -> list[str]:
        """Paths that match a pattern, sorted, MAX_MATCHES at most: a driver may ask its firmware for each number."""
        found = sorted(glob(self.root + pattern))  # noqa: PTH207
        return [path.removeprefix(self.root) for path in found[:MAX_MATCHES]]

    def maps(self, pid: int, directory: str) -> bool:
        """Whether a process has mapped a file of a directory. Of what is mapped before no more is read than that."""
        entry, rest = os.fsencode(f" {directory}/"), b""
        with contextlib.suppress(OSError):
            for piece in self._pieces(f"/proc/{pid}/maps", _MAX_MAPS_BYTES):
                if entry in (rest := rest[-len(entry) :] + piece):
                    return True
        return False

    def _pieces(self, file: str, most: int) -> Iterator[bytes]:
        """The beginning of a file in the pieces that the kernel gives, of /proc/PID/maps a page at a time."""
        descriptor = os.open(self.root + file, _FLAGS)
        try:
            while most > 0 and (piece := os.read(descriptor, min(most, _MOST_BYTES))):
                most -= len(piece)
                yield piece
        finally:
            os.close(descriptor)

    def ids(self) -> list[int]:
        """The ids of all visible processes, ascending."""
        return self._numbers("/proc")

    def threads(self, pid: int) -> list[int]:
        """The ids of the threads of a process, ascending; empty if it has ended."""
        return self._numbers(f"/proc/{pid}/task")

    def user(self, pid: int) -> int:
        """The id of a process's user; -1 if there is no such process."""
        try:
            return os.stat(f"{self.root}/proc/{pid}").st_uid  # noqa: PTH116
        except OSError:
            return -1

    def outputs(self, user: int) -> set[tuple[int, int]]:
        """Regular files that processes of this user write and do not read: their devices and inodes.

        Those are standard output and error, and what is open for writing only. Of at most MAX_OUTPUTS processes, those
        with the highest ids, and of MAX_DESCRIPTORS of each, while they are MAX_ALL_DESCRIPTORS together.
        """
        found, left = set(), MAX_ALL_DESCRIPTORS
        for pid in [one for one in self.ids() if self.user(one) == user][-MAX_OUTPUTS:]:
            paths = {f"{self.root}/proc/{pid}/fd/{number}" for number in (1, 2)}
            with contextlib.suppress(OSError), os.scandir(f"{self.root}/proc/{pid}/fd") as descriptors:
                for descriptor in islice(descriptors, min(left, MAX_DESCRIPTORS)):
                    left -= 1
                    # The permissions of the link are the mode in which it was opened.
                    if descriptor.stat(follow_symlinks=False).st_mode & (stat.S_IRUSR | stat.S_IWUSR) == stat.S_IWUSR:
                        paths.add(descriptor.path)
            for path in paths:
                with contextlib.suppress(OSError):
                    status = os.stat(path)  # noqa: PTH116
                    if stat.S_ISREG(status.st_mode):
                        found.add((status.st_dev, status.st_ino))
        return found

    def connections(self) -> np.ndarray[Any, Any]:
        """The TCP connections of this process's user to other machines; empty where the kernel does not tell."""
        # A launcher asks for none, and begins before this is imported.
        from barograph_agent.system import sockets

        return sockets.NONE if self.root else sockets.established(os.getuid())

    def _numbers(self, folder: str) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self.root + folder) if name.isdecimal())  # noqa: PTH208
        except OSError:
            return []

    def _words(self, pid: int, name: str) -> list[str]:
        try:
            return os.fsdecode(Path(f"{self.root}/proc/{pid}/{name}").read_bytes()).rstrip("\0").split("\0")
        except OSError:
            return []


PROCESSES: Final = Processes()


def seconds(ticks: int) -> float:
    """Clock ticks in seconds, with a resolution of 10 ms."""
    return ticks / os.sysconf("SC_CLK_TCK")
