"""Access control over HTTP: viewers of the page and of `/predict`, identified by tokens.

`viewers.json` in the key directory lists the viewers, with the SHA-256 of each token. An operator sees all jobs, a user
only those of the user of the same name.
"""

from __future__ import annotations

import hashlib
import http.cookies
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

import msgspec

from barograph_agent.system.clock import CLOCK
from barograph_collector.auth.keys import WatchedFile, check_new_name, read_json, write_json, write_secret

VIEWERS: Final = "viewers.json"
COOKIE: Final = "barograph"
"""The cookie that carries the token of a browser."""
_ADD: Final = "barograph keys add operator NAME"
Right: TypeAlias = Literal["operator", "user"]


@dataclass(frozen=True, slots=True)
class Viewer:
    """The sender of a request. `name` is a user name as in `jobs`; "" without access control."""

    name: str
    operator: bool

    def may_see(self, user: str) -> bool:
        """Whether this viewer may see the jobs of a user."""
        return self.operator or (bool(self.name) and user == self.name)


ANYBODY: Final = Viewer("", operator=True)
"""The viewer of requests without access control, which is for loopback addresses only."""


class TokenEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A viewer in the file. `digest`: SHA-256 of the token, hexadecimal. `added_at` in Unix seconds."""

    name: str
    right: Right
    digest: str
    added_at: float


class Access(WatchedFile[TokenEntry]):
    """The viewers of a file, by the digest of their tokens."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """From `viewers.json`. Raises KeysError."""
        return cls(path, list[TokenEntry], lambda entry: entry.digest, _ADD)

    def authenticate(self, authorization: str = "", cookie: str = "") -> Viewer | None:
        """The viewer of a request, by its `Authorization: Bearer TOKEN` or `Cookie` header; None for an invalid one."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.owner(token.strip())
        return self.owner(_token_in_cookie(cookie)) if not authorization else None

    def owner(self, token: str) -> Viewer | None:
        """The viewer with this token, or None."""
        # Tokens are 256 random bits and looked up by digest: the time of a lookup reveals nothing about other tokens.
        entry = self.get(_digest(token))
        return Viewer(entry.name, entry.right == "operator") if entry else None


def add(directory: Path, right: Right, name: str) -> Path:
    """Register a viewer; returns the file with the token. Raises KeysError."""
    entries = load_all(directory)
    check_new_name(name, (entry.name for entry in entries))
    token = secrets.token_urlsafe(32)
    path = directory / f"{name}.token"
    write_secret(path, token.encode() + b"\n")
    write_json(directory / VIEWERS, [*entries, TokenEntry(name, right, _digest(token), CLOCK.now())])
    return path


def revoke(directory: Path, name: str) -> TokenEntry | None:
    """Remove a viewer and the token file; None where no viewer has this name. Raises KeysError."""
    entries = load_all(directory)
    gone = next((entry for entry in entries if entry.name == name), None)
    if gone is not None:
        write_json(directory / VIEWERS, [entry for entry in entries if entry is not gone])
        (directory / f"{name}.token").unlink(missing_ok=True)
    return gone


def load_all(directory: Path) -> list[TokenEntry]:
    """The viewers in the key directory; none where the file does not exist. Raises KeysError."""
    path = directory / VIEWERS
    return read_json(path, list[TokenEntry], _ADD) if path.exists() else []


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this host only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _token_in_cookie(header: str) -> str:
    try:
        morsel = http.cookies.SimpleCookie(header).get(COOKIE)
    except http.cookies.CookieError:
        return ""
    return morsel.value if morsel else ""
