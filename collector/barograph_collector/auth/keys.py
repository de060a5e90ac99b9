"""The key directory: the collector's key pair, the secret of job tokens, and the clients that may connect.

    collector.json   the collector's CURVE key pair and the token secret; must not leave this host
    clients.json     public keys of clients, each with a name and a role
    viewers.json     viewers of the page, see `http_access`
    NAME.key         the key file of a client, to be moved to where the client runs

Each is a file of mode 600, replaced as a whole.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
import zmq

from barograph_agent.deliver.keys import ClientKey, Role
from barograph_agent.protocol.tables import IDENTIFIER, Kind
from barograph_agent.system.clock import CLOCK
from barograph_agent.system.disk import DISK

COLLECTOR: Final = "collector.json"
CLIENTS: Final = "clients.json"
_INIT: Final = "barograph keys init"
_log = logging.getLogger(__name__)
T = TypeVar("T")


class KeysError(Exception):
    """The key directory cannot be used, or a change of it is invalid. The text names the path and what was expected."""


class CollectorKey(msgspec.Struct, frozen=True):
    """CURVE keys as 40 characters of Z85, the secret of job tokens as hexadecimal."""

    public: str
    secret: str
    token_secret: str


class Client(msgspec.Struct, frozen=True):
    """A client that may connect. `added_at` in Unix seconds."""

    name: str
    role: Role
    public: str
    added_at: float


def init(directory: Path) -> CollectorKey:
    """Make a key directory with a fresh key and no clients. Raises KeysError where one exists already."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeysError(f"cannot create the key directory {directory}: {error.strerror}") from None
    if (directory / COLLECTOR).exists():
        raise KeysError(f"key directory {directory} has keys already, expected none: every client holds the old one")
    public, secret = zmq.curve_keypair()
    key = CollectorKey(public.decode(), secret.decode(), secrets.token_hex(32))
    write_json(directory / CLIENTS, [])
    write_json(directory / COLLECTOR, key)
    return key


def add(directory: Path, role: Role, name: str) -> Path:
    """Register a new client; returns its key file. Raises KeysError."""
    key, clients = load_collector(directory), load_clients(directory)
    check_new_name(name, (client.name for client in clients))
    public, secret = (half.decode() for half in zmq.curve_keypair())
    path = directory / f"{name}.key"
    write_json(path, ClientKey(name, role, public, secret, key.public))
    write_json(directory / CLIENTS, [*clients, Client(name, role, public, CLOCK.now())])
    return path


def revoke(directory: Path, name: str) -> Client:
    """Remove a client, and its key file where it is still in the directory. Raises KeysError."""
    clients = load_clients(directory)
    gone = next((client for client in clients if client.name == name), None)
    if gone is None:
        names = ", ".join(client.name for client in clients) or "none"
        raise KeysError(f"name is {name!r}, expected one of: {names}")
    write_json(directory / CLIENTS, [client for client in clients if client is not gone])
    (directory / f"{name}.key").unlink(missing_ok=True)
    return gone


def load_collector(directory: Path) -> CollectorKey:
    """The collector's own key. Raises KeysError, also where users other than its owner may read it."""
    path = directory / COLLECTOR
    key = read_json(path, CollectorKey, _INIT)
    if (mode := path.stat().st_mode & 0o777) & 0o077:
        raise KeysError(f"{path} has mode {mode:o}, expected 600")
    return key


def load_clients(directory: Path) -> list[Client]:
    """The clients that may connect. Raises KeysError."""
    return read_json(directory / CLIENTS, list[Client], _INIT)


class WatchedFile(Generic[T]):
    """The entries of a JSON file by one of their fields, read again when the file has changed.

    `refresh` and `poll` belong to one thread; any thread may look entries up.
    """

    def __init__(self, path: Path, kind: type[list[T]], key: Callable[[T], str], command: str) -> None:
        """`command` makes the file, for error texts. Raises KeysError."""
        self._path, self._kind, self._key, self._command = path, kind, key, command
        self._stamp = self._current_stamp()
        self._entries = self._load()
        self._last_error = ""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        """The entry with this key, or None."""
        return self._entries.get(key)

    def refresh(self) -> bool:
        """Read the file if it has changed; says whether it has. Raises KeysError and keeps the former entries."""
        stamp = self._current_stamp()
        if stamp == self._stamp:
            return False
        # Replaced as a whole: other threads use it.
        self._entries = self._load()
        self._stamp = stamp
        return True

    def poll(self) -> None:
        """`refresh` for the main loop of a daemon: an error is logged once, not raised."""
        text = ""
        try:
            if self.refresh():
                _log.info("%s has changed: %d entries", self._path, len(self))
        except KeysError as error:
            text = str(error)
            if text != self._last_error:
                _log.error("%s; the former entries stay valid", text)
        self._last_error = text

    def _load(self) -> dict[str, T]:
        return {self._key(entry): entry for entry in read_json(self._path, self._kind, self._command)}

    def _current_stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:  # which `_load` reports
            return None
        # Two writes within 10 ms may have the same modification time.
        return status.st_ino, status.st_mtime_ns, status.st_size


class Keyring(WatchedFile[Client]):
    """The clients that may connect, by public key, and the collector's own key."""

    def __init__(self, directory: Path) -> None:
        """Raises KeysError."""
        self.collector = load_collector(directory)
        super().__init__(directory / CLIENTS, list[Client], lambda client: client.public, _INIT)


def check_new_name(name: str, taken: Iterable[str]) -> None:
    """Raises KeysError for a name that is no identifier, contains a slash or is in use."""
    if not IDENTIFIER.fullmatch(name) or "/" in name:
        raise KeysError(f"name is {name!r}, expected {Kind.NAME.text}, without /")
    if name in taken:
        raise KeysError(f"name is {name!r}, expected one that is not in use: revoke it first")


def read_json(path: Path, kind: type[T], command: str) -> T:
    """The content of a file that `command` makes. Raises KeysError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; `{command}` makes it") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KeysError(f"cannot read {path}: {error}") from None


def write_json(path: Path, content: object) -> None:
    """Replace a file, as indented JSON. Raises KeysError."""
    write_secret(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def write_secret(path: Path, content: bytes) -> None:
    """Replace a file by one of mode 600. Raises KeysError."""
    try:
        # DISK.replace writes into this file, which others must not be able to read before it holds a secret.
        path.with_name(f"{path.name}.part").touch(mode=0o600)
        DISK.replace(path, content)
    except OSError as error:
        hint = f"; `{_INIT}` makes the directory" if isinstance(error, FileNotFoundError) else ""
        raise KeysError(f"cannot write {path}: {error.strerror}{hint}") from None
