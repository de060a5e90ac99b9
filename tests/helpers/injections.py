"""Disturbances of a running program, most by stress-ng, which knows nothing of Barograph. Each ends with its block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
# It ends when the benchmark is killed.
LOOP: Final = """
import os
os.sched_setaffinity(0, [{core}])
while os.getppid() == {parent}:
    sum(range(1_000_000))
"""
SWAP_MIB: Final = 2048


@contextmanager
def busy_loop(core: int) -> Iterator[None]:
    """Keeps a core busy."""
    loop = subprocess.Popen([sys.executable, "-c", LOOP.format(core=core, parent=os.getpid())])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


@contextmanager
def stress(core: int, *arguments: str | Path, group: MemoryGroup | None = None) -> Iterator[None]:
    """stress-ng on one core, in a memory group if there is one."""
    command = [*(group.prefix if group else []), "taskset", "-c", str(core), "stress-ng", "--quiet", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, f"{command} has ended with {process.returncode}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def stopped(pid: int, seconds: float) -> Iterator[None]:
    """A process that is stopped for so long, and then goes on."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)
    yield


class MemoryGroup:
    """A control group whose memory can be limited; of version 1 or 2. Raises OSError where there is none."""

    def __init__(self, name: str) -> None:
        is_old = (CGROUPS / "memory").is_dir()
        self.folder = (CGROUPS / "memory" if is_old else CGROUPS) / name
        self._limit, self._usage = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_old else ("memory.max", "memory.current")
        )
        self._nothing = "-1" if is_old else "max"
        self.folder.mkdir(exist_ok=True)
        self.prefix = ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]
        """What starts a command in it."""

    @property
    def used(self) -> int:
        """Bytes."""
        return int((self.folder / self._usage).read_text())

    @contextmanager
    def limited(self, limit: int) -> Iterator[None]:
        """Its processes have this many bytes and swap what is more."""
        (self.folder / self._limit).write_text(str(limit))
        try:
            yield
        finally:
            (self.folder / self._limit).write_text(self._nothing)

    def remove(self) -> None:
        """Remove it, once it is empty."""
        with suppress(OSError):
            self.folder.rmdir()


@contextmanager
def swap(folder: Path, mebibytes: int = SWAP_MIB) -> Iterator[None]:
    """Swap space in a file. Raises CalledProcessError where that is not allowed."""
    file = folder / "swap"
    for command in (["fallocate", "-l", f"{mebibytes}M"], ["chmod", "600"], ["mkswap", "-q"], ["swapon"]):
        subprocess.run([*command, file], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)


def rank_of(process: subprocess.Popen[str] | subprocess.Popen[bytes], program: str, rank: int) -> int:
    """The process of one rank, below the process of a launcher. program: name of its file."""
    wanted = {f"{name}={rank}".encode() for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK")}
    for pid in descendants(process.pid):
        directory = Path(f"/proc/{pid}")
        # The program itself, not the script of the same name that starts it.
        with suppress(OSError):
            is_program = (directory / "exe").readlink().name == program
            if is_program and wanted & set((directory / "environ").read_bytes().split(b"\0")):
                return pid
    raise AssertionError(f"no rank {rank} of {program} below process {process.pid}")


def descendants(pid: int) -> Iterator[int]:
    """All processes that a process has started, at any distance."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # A thread may end meanwhile.
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))
