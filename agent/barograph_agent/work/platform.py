"""What a job runs on, as far as it makes jobs faster or slower: MPI library, kernel, firmware, type of node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from barograph_agent.system.processes import Processes
from barograph_agent.work.contents import Contents

MAPS_BYTES: Final = 2**22
"""What is read of the list of a process's mapped files."""
FIRST_CORE_BYTES: Final = 4096
"""What is read of /proc/cpuinfo: the first core has less."""
MAX_TEXT: Final = 100
MPI_DIGITS: Final = 6
_MPI: Final = re.compile(
    rb"/[^\n]*/libmpi(?:ch|abi|_ibm|_cray|_gnu\w*|_intel\w*|_nvidia\w*|_aocc\w*)?\.so[^/\n]*$", re.M
)
_BIOS: Final = "/sys/class/dmi/id/bios_version"


def platform(pid: int, processes: Processes, contents: Contents) -> dict[str, str]:
    """By `mpi`, `kernel`, `firmware` and `node` what is known of each, in words. pid: a process of the job.

    Raises OutOfTime.
    """
    core = _fields(processes.show("/proc/cpuinfo", FIRST_CORE_BYTES))
    found = {
        "mpi": _mpi(pid, processes, contents),
        "kernel": _line(processes.show("/proc/sys/kernel/osrelease")),
        "firmware": _joined(("bios", _line(processes.show(_BIOS))), ("microcode", core.get("microcode", ""))),
        "node": _node(core, _line(processes.show("/sys/devices/system/cpu/present"))),
    }
    return {name: text[:MAX_TEXT] for name, text in found.items() if text}


def _mpi(pid: int, processes: Processes, contents: Contents) -> str:
    """File name of the MPI library, and digits of its build id: that of a rebuilt library has the same name."""
    library = _MPI.search(processes.show(f"/proc/{pid}/maps", MAPS_BYTES))
    if library is None:
        return ""
    path = library[0].removesuffix(b" (deleted)").decode(errors="surrogateescape")
    digest = contents.of_executable(processes.place(pid, "root") / path.lstrip("/")).digest
    name = Path(path).name.encode(errors="replace").decode()
    return f"{name} {digest[:MPI_DIGITS]}".strip()


def _node(core: dict[str, str], present: str) -> str:
    """Model and number of cores."""
    arm = _joined(("CPU implementer", core.get("CPU implementer", "")), ("part", core.get("CPU part", "")))
    model = " ".join((core.get("model name") or core.get("cpu") or arm).split())
    cores = sum(int(last or first) - int(first) + 1 for first, last in re.findall(r"(\d+)(?:-(\d+))?", present))
    return ", ".join([model] * bool(model) + [f"{cores} cores"] * bool(cores))


def _fields(text: bytes) -> dict[str, str]:
    """Of the first core: names and values of its lines."""
    lines = text.decode(errors="replace").partition("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _line(text: bytes) -> str:
    return text.decode(errors="replace").partition("\n")[0].strip()


def _joined(*parts: tuple[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in parts if text)
