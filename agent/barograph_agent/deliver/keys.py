"""Key files of clients, for collectors that require authentication: JSON, named by BAROGRAPH_KEY.

A key file holds the client's CURVE key pair and the collector's public key, so that each side authenticates the other.
A key authorizes a role; the user of an agent is authenticated by its credential.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import zmq

VARIABLE: Final = "BAROGRAPH_KEY"

Role: TypeAlias = Literal["agent", "reader", "writer", "importer", "editor"]
"""agent: appends to its own job. The others read everything. writer: appends results. importer: appends past jobs.
editor: names, splits and merges groups of like work."""


class KeyFileError(ValueError):
    """An unusable key file. The text names the file, the problem and what was expected."""


class ClientKey(msgspec.Struct, frozen=True):
    """Content of a client's key file; CURVE keys as 40 characters of Z85."""

    name: str
    role: Role
    public: str
    secret: str
    collector: str
    """The collector's public key."""

    def apply(self, socket: zmq.Socket[bytes]) -> None:
        """Enable CURVE on a socket. To be called before the socket connects."""
        socket.curve_publickey = self.public.encode()
        socket.curve_secretkey = self.secret.encode()
        socket.curve_serverkey = self.collector.encode()


def load(path: Path) -> ClientKey:
    """Read a key file. An agent's may be readable by all users of a node, any other by its owner only.

    Raises KeyFileError.
    """
    try:
        mode = path.stat().st_mode & 0o777
        key = msgspec.json.decode(path.read_bytes(), type=ClientKey)
    except OSError as error:
        raise KeyFileError(f"key file {path}: {error.strerror}, expected one from `barograph keys add`") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KeyFileError(f"key file {path}: {error}, expected one from `barograph keys add`") from None
    if {len(key.public), len(key.secret), len(key.collector)} != {40}:
        raise KeyFileError(f"key file {path} holds a key of another length, expected 40 characters each")
    if key.role != "agent" and mode & 0o077:
        raise KeyFileError(f"key file {path} has mode {mode:o}, expected 600: it is a {key.role}'s")
    return key


def from_environment(environment: Mapping[str, str]) -> ClientKey | None:
    """The key named by BAROGRAPH_KEY; None if the variable is unset. Raises KeyFileError."""
    path = environment.get(VARIABLE)
    return load(Path(path)) if path else None
