"""Programs whose MPI the shim does not see, and why: by their files, and by their processes while they run."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barograph_agent.kernel.readings import process_stat
from barograph_agent.reduce.elf import SEGMENTS, parts
from barograph_agent.system.processes import Processes

SECURE: Final = "is a setuid or setgid program, into which no library is preloaded"
STATIC: Final = "is linked statically, so no library is preloaded into it"
OWN_MPI: Final = "has MPI linked statically, so its calls do not pass through the shim"
WITHOUT: Final = "was started without LD_PRELOAD in its environment"
REPLACED: Final = "was started with an LD_PRELOAD that does not name the shim"
OTHER_USER: Final = "runs as another user, who may not write into the directory of rings"
REFUSED: Final = "has LD_PRELOAD in its environment, but its dynamic linker did not load the shim"
SCAN_SECONDS: Final = (0.3, 1.0, 3.0, 10.0, 60.0, 600.0)
"""Seconds after the start at which processes are scanned."""
MAX_PROGRAMS: Final = 4
"""Programs that are named."""
MAX_FILE_BYTES: Final = 2**28
_CHUNK: Final = 2**20
_MAPS_BYTES: Final = 2**22
_INTERPRETER: Final = 3
_MARKS: Final = (b"PMPI_Init\0", b"**mpi_init", b"PML add procs failed")
"""What is in a file that contains an MPI, and in none that uses a shared one: a symbol, and texts of errors of MPICH
and Open MPI."""
_SHARED_MPI: Final = re.compile(rb"/libmpi[^/\n]*\.so")


class Hidden(NamedTuple):
    """A program that is not seen. is_mpi: whether it certainly uses MPI."""

    path: str
    why: str
    is_mpi: bool

    def __str__(self) -> str:
        return f"{self.path} {self.why}"


def of_file(path: str) -> Hidden | None:
    """Why a process of an executable file is not seen; None if it is seen, as far as the file shows."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # A setuid program need not be readable.
        return Hidden(path, SECURE, is_mpi=False) if _is_secure(path) else None
    try:
        _, segments = parts(lambda size, at: os.pread(descriptor, size, at), SEGMENTS)
        kinds = {segment.kind for segment in segments}
        if not kinds:
            return None
        is_mpi = _contains_mpi(descriptor)
        if _is_secure(path):
            return Hidden(path, SECURE, is_mpi)
        if _INTERPRETER not in kinds:
            return Hidden(path, STATIC, is_mpi)
        return Hidden(path, OWN_MPI, is_mpi) if is_mpi else None
    except (struct.error, IndexError, OverflowError, OSError):
        return None
    finally:
        os.close(descriptor)


def of_command(command: Sequence[str], environment: Mapping[str, str]) -> list[Hidden]:
    """Hidden programs that a command names."""
    paths = (shutil.which(word, path=environment.get("PATH")) for word in command)
    found = (of_file(path) for path in dict.fromkeys(filter(None, paths)))
    return [one for one in found if one is not None]


class HiddenPrograms:
    """Hidden programs among the descendants of a process, by scans that become rarer."""

    def __init__(self, shim: str, processes: Processes) -> None:
        """shim: the name of the library's file."""
        self.found: dict[str, Hidden] = {}
        """By path."""
        self._shim = os.fsencode(f"/{shim}")
        self._processes = processes
        self._scans = list(SCAN_SECONDS)
        self._known: set[int] = set()
        self._files: dict[str, Hidden | None] = {}

    def scan(self, root: int, passed: float) -> None:
        """Scan, if it is due: passed seconds after the start of the process `root`, which is one of them."""
        if not self._scans or passed < self._scans[0]:
            return
        self._scans = [seconds for seconds in self._scans if seconds > passed]
        for pid in self._below(root):
            if pid not in self._known and (hidden := self._of_process(pid)):
                self.found.setdefault(hidden.path, hidden)

    def _below(self, root: int) -> Iterator[int]:
        children: dict[int, list[int]] = {}
        for pid in self._processes.ids():
            if (stat := process_stat(self._processes, pid)) is not None:
                children.setdefault(stat.parent, []).append(pid)
        left = [root]
        while left:
            yield (pid := left.pop())
            left += children.get(pid, [])

    def _of_process(self, pid: int) -> Hidden | None:
        maps = self._processes.show(f"/proc/{pid}/maps", _MAPS_BYTES)
        is_shared = _SHARED_MPI.search(maps) is not None
        path = self._path(pid)
        if self._shim in maps and is_shared:
            self._known.add(pid)
            is_own = self._processes.user(pid) in (-1, os.getuid())
            return None if is_own else Hidden(path, OTHER_USER, is_mpi=True)
        if path not in self._files:
            self._files[path] = of_file(path)
        hidden = self._files[path]
        if self._shim in maps or not is_shared:
            return hidden
        if hidden is not None:
            return hidden._replace(is_mpi=True)
        preloads = self._processes.environment(pid).get("LD_PRELOAD", "")
        why = REFUSED if self._shim.decode() in preloads else REPLACED if preloads else WITHOUT
        return Hidden(path, why, is_mpi=True)

    def _path(self, pid: int) -> str:
        try:
            return str(self._processes.place(pid, "exe").readlink())
        except OSError:  # of another user, as a setuid program is
            words = self._processes.command(pid)
            return (shutil.which(words[0]) or "") if words and words[0] else ""


def _is_secure(path: str) -> bool:
    """Whether the kernel gives a process of this file other rights than its parent has."""
    try:
        status = Path(path).stat()
    except OSError:
        return False
    other_user = status.st_mode & 0o4000 and status.st_uid != os.getuid()
    other_group = status.st_mode & 0o2000 and status.st_gid != os.getgid()
    return bool(other_user or other_group or _has_capabilities(path))


def _has_capabilities(path: str) -> bool:
    try:
        return os.getuid() != 0 and bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def _contains_mpi(descriptor: int) -> bool:
    overlap = max(map(len, _MARKS))
    tail = b""
    for at in range(0, MAX_FILE_BYTES, _CHUNK):
        data = os.pread(descriptor, _CHUNK, at)
        if any(mark in tail + data for mark in _MARKS):
            return True
        if len(data) < _CHUNK:
            return False
        tail = data[-overlap:]
    return False
