"""Who may look at what over HTTP: the page and `/predict` ask here, with the token that a request came with.

`viewers.json` in the key directory names them; of each token only its SHA-256 is kept. An operator sees all jobs, a
user those of the user that the viewer is named after.
"""

from __future__ import annotations

import hashlib
import http.cookies
import ipaddress
import logging
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

import msgspec

from barograph_agent.deliver.spool import replace_file
from barograph_agent.protocol.tables import IDENTIFIER, Kind
from barograph_collector.auth.keys import KeysError

VIEWERS: Final = "viewers.json"
COOKIE: Final = "barograph"
"""The cookie that carries the token of a browser."""
_log = logging.getLogger(__name__)
Right: TypeAlias = Literal["operator", "user"]


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who looks. `name` is a user's as the jobs have it, "" where nobody was asked."""

    name: str
    operator: bool

    def may_see(self, user: str) -> bool:
        """Whether a job of this user is this viewer's to see."""
        return self.operator or (bool(self.name) and user == self.name)


ANYBODY: Final = Viewer("", operator=True)
"""Who looks where no tokens are asked for, which is on loopback alone."""


class TokenEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A viewer in the file. `digest`: SHA-256 of the token, hexadecimal. `added_at` in Unix seconds."""

    name: str
    right: Right
    digest: str
    added_at: float


class Access:
    """Whom a file of viewers lets in. Read again when it has changed; any thread may ask."""

    def __init__(self, path: Path, entries: list[TokenEntry], stamp: tuple[int, int, int]) -> None:
        """`read` makes one."""
        self._path = path
        self._stamp = stamp
        self._viewers = _by_digest(entries)
        self._complaint = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """From `viewers.json`. Raises KeysError."""
        stamp = _stamp(path)
        return cls(path, load(path), stamp)

    def refresh(self) -> bool:
        """Look whether the file has changed; says so. Raises KeysError and lets in whom it did before."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        self._viewers = _by_digest(load(self._path))
        self._stamp = stamp
        return True

    def look(self) -> None:
        """`refresh`, for a daemon's main loop: what is wrong with the file becomes one line in its log."""
        complaint = ""
        try:
            if self.refresh():
                _log.info("viewers have changed: %d are let in", len(self._viewers))
        except KeysError as error:
            complaint = str(error)
            if complaint != self._complaint:
                _log.error("%s; those who were let in before still are", complaint)
        self._complaint = complaint

    def who(self, authorization: str = "", cookie: str = "") -> Viewer | None:
        """Whose token came in a request's `Authorization: Bearer TOKEN` or `Cookie` header; None for nobody's."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.owner(token.strip())
        return self.owner(_from_cookie(cookie)) if not authorization else None

    def owner(self, token: str) -> Viewer | None:
        """Whose token this is; None for nobody's."""
        # A token is 256 random bits and is looked up by its digest: how long that takes tells nothing of another's.
        return self._viewers.get(_digest(token))


def add(directory: Path, right: Right, name: str) -> Path:
    """Let a viewer in; returns the file with the token. Raises KeysError."""
    if not IDENTIFIER.fullmatch(name) or "/" in name:
        raise KeysError(f"name is {name!r}, expected {Kind.NAME.text}, without /")
    entries = load_all(directory)
    if any(entry.name == name for entry in entries):
        raise KeysError(f"name is {name!r}, expected one that is not in use: revoke it first")
    token = secrets.token_urlsafe(32)
    path = directory / f"{name}.token"
    _write(path, token.encode() + b"\n")
    _save(directory, [*entries, TokenEntry(name, right, _digest(token), time.time())])
    return path


def revoke(directory: Path, name: str) -> TokenEntry | None:
    """Let a viewer in no longer; None where there is none of this name. Raises KeysError."""
    entries = load_all(directory)
    gone = next((entry for entry in entries if entry.name == name), None)
    if gone is not None:
        _save(directory, [entry for entry in entries if entry is not gone])
        (directory / f"{name}.token").unlink(missing_ok=True)
    return gone


def load(path: Path) -> list[TokenEntry]:
    """Who is in the file. Raises KeysError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[TokenEntry])
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; `barograph keys add operator NAME` makes it") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KeysError(f"cannot read {path}: {error}") from None


def load_all(directory: Path) -> list[TokenEntry]:
    """Who is in the key directory; nobody where there is no file yet. Raises KeysError."""
    return load(directory / VIEWERS) if (directory / VIEWERS).exists() else []


def is_loopback(host: str) -> bool:
    """Whether only this host can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _save(directory: Path, entries: list[TokenEntry]) -> None:
    _write(directory / VIEWERS, msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n")


def _write(path: Path, content: bytes) -> None:
    try:
        # What replace_file writes into is closed to others before there is a secret in it.
        path.with_name(f"{path.name}.part").touch(mode=0o600)
        replace_file(path, content)
    except OSError as error:
        raise KeysError(f"cannot write {path}: {error.strerror}; `barograph keys init` makes the directory") from None


def _by_digest(entries: list[TokenEntry]) -> dict[str, Viewer]:
    return {entry.digest: Viewer(entry.name, entry.right == "operator") for entry in entries}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}; `barograph keys add operator NAME` makes it") from None
    # The clock of a file system may stand for 10 ms, in which a file is written twice.
    return status.st_ino, status.st_mtime_ns, status.st_size


def _from_cookie(header: str) -> str:
    try:
        morsel = http.cookies.SimpleCookie(header).get(COOKIE)
    except http.cookies.CookieError:
        return ""
    return morsel.value if morsel else ""
