"""What the sidecar of a run on another node leaves for the next one: a command may start several programs, with time
between them in which no process of the run is on the node.

A file beside the directory of rings, which the first rank of the next program finds as it found that directory.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.system.disk import DISK, Disk

SUFFIX: Final = ".earlier"
MAX_FILES: Final = 1000
"""Files of a user on a node; beyond it the oldest are deleted."""


class Earlier(msgspec.Struct, frozen=True):
    """The programs of a run on this node whose sidecars have ended.

    numbers: of their MPI worlds. announced: whether the rows of `jobs` and `works` are written.
    """

    numbers: list[int] = []
    announced: bool = False


def path_of(rings: Path) -> Path:
    """The file of the run with this directory of rings."""
    return rings.with_name(rings.name + SUFFIX)


def load(rings: Path, disk: Disk = DISK) -> Earlier:
    """What was left, nothing where there is no such file or it cannot be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(disk.read(path_of(rings)), type=Earlier)
    return Earlier()


def leave(rings: Path, earlier: Earlier, disk: Disk = DISK) -> None:
    """Write it, and delete the files of old runs. Raises OSError."""
    path = path_of(rings)
    disk.replace(path, msgspec.json.encode(earlier))
    names = [name for name in disk.names(path.parent) if name.endswith(SUFFIX) and name != path.name]
    if len(names) >= MAX_FILES:
        for old in sorted((path.parent / name for name in names), key=_changed_at)[: len(names) - MAX_FILES + 1]:
            disk.unlink(old, missing_ok=True)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
