"""The collector's key directory: its own key pair, the facility's secret for job tokens, and whom it lets in.

    collector.json   the collector's CURVE key pair and the token secret; never leaves this host
    clients.json     whom the collector lets in: public keys with a name and a role
    NAME.key         a client's key file, to be moved to where the client runs

Each is a file of mode 600, replaced as a whole.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import zmq

from barograph_agent.deliver.keys import ClientKey, Role
from barograph_agent.deliver.spool import replace_file
from barograph_agent.protocol.tables import IDENTIFIER, Kind

COLLECTOR: Final = "collector.json"
CLIENTS: Final = "clients.json"
T = TypeVar("T")


class KeysError(Exception):
    """A key directory that cannot be used, or a change that makes no sense. The text names it and what was expected."""


class CollectorKey(msgspec.Struct, frozen=True):
    """CURVE keys as 40 characters of Z85, the secret of job tokens as hexadecimal."""

    public: str
    secret: str
    token_secret: str


class Client(msgspec.Struct, frozen=True):
    """Someone who is let in. `added_at` in Unix seconds."""

    name: str
    role: Role
    public: str
    added_at: float


def init(directory: Path) -> CollectorKey:
    """Make a key directory with a fresh key and nobody in it. Raises KeysError where there is one already."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeysError(f"cannot create the key directory {directory}: {error.strerror}") from None
    if (directory / COLLECTOR).exists():
        raise KeysError(f"key directory {directory} has keys already, expected none: every client holds the old one")
    public, secret = zmq.curve_keypair()
    key = CollectorKey(public.decode(), secret.decode(), secrets.token_hex(32))
    _write(directory / CLIENTS, [])
    _write(directory / COLLECTOR, key)
    return key


def add(directory: Path, role: Role, name: str) -> Path:
    """Let a new client in; returns its key file. Raises KeysError."""
    if not IDENTIFIER.fullmatch(name) or "/" in name:
        raise KeysError(f"name is {name!r}, expected {Kind.NAME.text}, without /")
    key, clients = load_collector(directory), load_clients(directory)
    if any(client.name == name for client in clients):
        raise KeysError(f"name is {name!r}, expected one that is not in use: revoke it first")
    public, secret = (half.decode() for half in zmq.curve_keypair())
    path = directory / f"{name}.key"
    _write(path, ClientKey(name, role, public, secret, key.public))
    _write(directory / CLIENTS, [*clients, Client(name, role, public, time.time())])
    return path


def revoke(directory: Path, name: str) -> Client:
    """Let a client in no longer, and delete its key file if it is still here. Raises KeysError."""
    clients = load_clients(directory)
    gone = next((client for client in clients if client.name == name), None)
    if gone is None:
        names = ", ".join(client.name for client in clients) or "nobody is let in"
        raise KeysError(f"name is {name!r}, expected one of: {names}")
    _write(directory / CLIENTS, [client for client in clients if client is not gone])
    (directory / f"{name}.key").unlink(missing_ok=True)
    return gone


def load_collector(directory: Path) -> CollectorKey:
    """The collector's own key. Raises KeysError, also where others than its owner could read it."""
    path = directory / COLLECTOR
    if (mode := _mode(path)) & 0o077:
        raise KeysError(f"{path} has mode {mode:o}, expected 600")
    return _read(path, CollectorKey)


def load_clients(directory: Path) -> list[Client]:
    """Whom the collector lets in. Raises KeysError."""
    return _read(directory / CLIENTS, list[Client])


class Keyring:
    """Who is let in, by public key. Loaded again when the file has changed; any thread may ask."""

    def __init__(self, directory: Path) -> None:
        """Raises KeysError."""
        self.collector = load_collector(directory)
        self._directory = directory
        self._stamp = self._state()
        self._clients = {client.public: client for client in load_clients(directory)}

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def get(self, public: str) -> Client | None:
        """The client with this public key, if it is let in."""
        return self._clients.get(public)

    def refresh(self) -> bool:
        """Look whether the file has changed; says so. Raises KeysError and lets in whom it did before."""
        stamp = self._state()
        if stamp == self._stamp:
            return False
        self._clients = {client.public: client for client in load_clients(self._directory)}
        self._stamp = stamp
        return True

    def _state(self) -> tuple[int, int, int]:
        try:
            status = (self._directory / CLIENTS).stat()
        except OSError as error:
            raise KeysError(f"cannot read {self._directory / CLIENTS}: {error.strerror}") from None
        # The clock of a file system may stand for 10 ms, in which a file is written twice.
        return status.st_ino, status.st_mtime_ns, status.st_size


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; `barograph keys init` makes it") from None


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; `barograph keys init` makes it") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KeysError(f"cannot read {path}: {error}") from None


def _write(path: Path, content: object) -> None:
    try:
        # What replace_file writes into is closed to others before there is a secret in it.
        path.with_name(f"{path.name}.part").touch(mode=0o600)
        replace_file(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    except OSError as error:
        raise KeysError(f"cannot write {path}: {error.strerror}") from None
