"""Where the agent keeps things on a node. Everything is under the user's own name and closed to others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_ENDPOINT: Final = "tcp://127.0.0.1:7450"


def endpoint(environment: Mapping[str, str]) -> str:
    """The collector's address: BAROGRAPH_COLLECTOR, or this host's default."""
    return environment.get("BAROGRAPH_COLLECTOR") or DEFAULT_ENDPOINT


def ring_root(environment: Mapping[str, str]) -> Path:
    """Where rings live: memory, one directory per user."""
    return Path(environment.get("BAROGRAPH_RINGS") or f"/dev/shm/barograph-{os.getuid()}")


def spool_root(environment: Mapping[str, str]) -> Path:
    """Where spools live: a disk of this node (BAROGRAPH_SPOOL), never a parallel file system."""
    return Path(environment.get("BAROGRAPH_SPOOL") or f"/var/tmp/barograph-{os.getuid()}")


def private_directory(path: Path) -> Path:
    """Create `path` for its owner alone, or check that it is. Raises PermissionError naming what is wrong."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = path.lstat()
    if status.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to uid {status.st_uid}, expected {os.getuid()}")
    if not path.is_dir() or path.is_symlink():
        raise PermissionError(f"{path} is not a directory, expected one of this user's")
    return path
