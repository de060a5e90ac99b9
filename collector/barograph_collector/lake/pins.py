"""Pins: commits of a catalog in a file of which there is a backup. The files that they list are not deleted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.system.disk import Disk

PINS_FILE: Final = "backups.json"


def read(directory: Path, disk: Disk) -> list[int]:
    """The numbers of the pinned commits, none for a file that is not there. directory: of the catalog.

    Raises OSError for one that cannot be read: nothing may be deleted then.
    """
    path = directory / PINS_FILE
    if not disk.exists(path):
        return []
    try:
        return msgspec.json.decode(disk.read(path), type=list[int])
    except msgspec.MsgspecError as error:
        raise OSError(f"{path}: {error}, expected a list of the commits that backups have") from None


def write(directory: Path, commits: Sequence[int], disk: Disk) -> None:
    """Pin these commits, and no others. Raises OSError."""
    disk.replace(directory / PINS_FILE, msgspec.json.encode(commits))
