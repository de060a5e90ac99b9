"""Files of /proc and /sys as a test writes them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from barograph_agent.system.processes import Processes
from barograph_agent.system.sockets import CONNECTION

TICKS = os.sysconf("SC_CLK_TCK")


class FakeProc(Processes):
    """Processes whose counters a test sets. Seconds unless said otherwise."""

    root = "/nonexistent"

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.users: dict[int, int] = {}
        self.sockets: list[tuple[int, bytes, float, int]] = []
        """Rows of CONNECTION."""
        self.shown = 0
        """Files read so far."""

    def show(self, file: str, most: int = 2**16) -> bytes:
        self.shown += 1
        return self.files.get(file, b"")[:most]

    def connections(self) -> np.ndarray[Any, Any]:
        return np.array(self.sockets, CONNECTION)

    def born(self, pid: int) -> int:
        stat = self.files.get(f"/proc/{pid}/stat", b"").rpartition(b")")[2].split()
        return int(stat[19]) if stat else -1

    def ids(self) -> list[int]:
        return sorted(int(file.split("/")[2]) for file in self.files if file.endswith("/stat") and file != "/proc/stat")

    def threads(self, pid: int) -> list[int]:
        start = f"/proc/{pid}/task/"
        return sorted(int(file.removeprefix(start).split("/")[0]) for file in self.files if file.startswith(start))

    def user(self, pid: int) -> int:
        return self.users.get(pid, 1000)

    def write(self, file: str, text: str | bytes) -> None:
        """Write a file such as /proc/stat."""
        self.files[file] = text if isinstance(text, bytes) else text.encode()

    def process(
        self,
        pid: int,
        name: str | bytes = "app",
        *,
        state: str = "R",
        parent: int = 1,
        cpu: float = 0.0,
        ran: float = 0.0,
        delay: float = 0.0,
        faults: int = 0,
        io: float = 0.0,
        core: int = 0,
        born: int = 500,
        threads: int = 1,
    ) -> None:
        """Write the files of a process."""
        fields = [str(0)] * 50
        fields[0], fields[1], fields[9], fields[11] = state, str(parent), str(faults), str(round(cpu * TICKS))
        fields[17], fields[19], fields[21] = str(threads), str(born), "256"
        fields[36], fields[39] = str(core), str(round(io * TICKS))
        called = name if isinstance(name, bytes) else name.encode()
        self.write(f"/proc/{pid}/stat", b"%d (%s) %s\n" % (pid, called, " ".join(fields).encode()))
        self.thread(pid, pid, ran=ran, delay=delay)

    def thread(self, pid: int, thread: int, *, ran: float = 0.0, delay: float = 0.0) -> None:
        """Write the files of a thread."""
        self.write(f"/proc/{pid}/task/{thread}/schedstat", f"{round(ran * 1e9)} {round(delay * 1e9)} 7\n")

    def node(self, *, busy: float = 0.0, steal: float = 0.0, swapped: int = 0, memory: float = 0.0) -> None:
        """Write the files of the node, which has two cores."""
        words = f"{round(busy * TICKS)} 0 0 100 0 0 0 {round(steal * TICKS)} 0 0"
        self.write("/proc/stat", f"cpu  {words}\ncpu0 {words}\ncpu1 {words}\nintr 1 2 3\n")
        self.write("/proc/vmstat", f"nr_free_pages 3\npswpin {swapped}\npswpout 0\n")
        self.write("/proc/meminfo", "MemTotal:  4000 kB\nMemAvailable:  3000 kB\n")
        for resource, total in (("cpu", 0.0), ("memory", memory), ("io", 0.0)):
            self.write(f"/proc/pressure/{resource}", f"some avg10=0.00 avg60=0.00 total={round(total * 1e6)}\nfull x\n")
