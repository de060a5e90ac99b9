"""The credential in an agent's hello: authenticates the agent's user. Each is created for one hello and valid once.

    munge:CREDENTIAL   a MUNGE credential whose payload is `payload(stream)`: the node's munged attests the uid
    token:JSON         a Proof, computed with the key in a job token that the facility issued to the job

The token is the file named by BAROGRAPH_TOKEN. Its key is never sent: a proof shows that the sender has it. The
collector derives the same key from the facility's secret, so it stores no tokens.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver import munge
from barograph_agent.system.clock import CLOCK

TOKEN_VARIABLE: Final = "BAROGRAPH_TOKEN"
MUNGE_VARIABLE: Final = "BAROGRAPH_MUNGE_SOCKET"


class CredentialError(Exception):
    """A credential cannot be created. The text states the reason."""


class Token(msgspec.Struct, frozen=True):
    """Content of a job token file: `user` may write `job` until `expires` (Unix seconds).

    `job` is cluster/id, for all restarts and steps of that job.
    """

    job: str
    user: str
    expires: int
    key: str
    """Hexadecimal; see `token_key`."""


class Proof(msgspec.Struct, frozen=True):
    """Proof of possession of a token's key, for one stream, at one time (Unix seconds), valid once."""

    job: str
    user: str
    expires: int
    at: float
    nonce: str
    mac: str


def token_key(secret: bytes, job: str, user: str, expires: int) -> bytes:
    """The key of a token: HMAC-SHA256 of its other fields with the facility's secret."""
    return _mac(secret, "barograph token", job, user, str(expires))


def issue(secret: bytes, job: str, user: str, expires: int) -> Token:
    """A new token for a job."""
    return Token(job, user, expires, token_key(secret, job, user, expires).hex())


def prove(token: Token, stream: str, at: float, nonce: str) -> Proof:
    """A proof for one hello. Raises ValueError for a key that is not hexadecimal."""
    mac = proof_mac(bytes.fromhex(token.key), stream, at, nonce)
    return Proof(token.job, token.user, token.expires, at, nonce, mac)


def proof_mac(key: bytes, stream: str, at: float, nonce: str) -> str:
    """The value of `Proof.mac`."""
    return _mac(key, "barograph hello", stream, repr(at), nonce).hex()


def payload(stream: str) -> bytes:
    """The payload of a MUNGE credential for this stream."""
    return b"barograph hello " + stream.encode()


def keep_token(environment: Mapping[str, str], job: str, kept: Path) -> None:
    """Copy the token named by BAROGRAPH_TOKEN to `kept` if it was issued to this job: the spool may outlive the job."""
    if (path := environment.get(TOKEN_VARIABLE)) and not kept.exists():
        with contextlib.suppress(OSError, ValueError):
            content = Path(path).read_bytes()
            if job.startswith(msgspec.json.decode(content, type=Token).job + "."):
                kept.touch(mode=0o600)
                kept.write_bytes(content)


def maker(environment: Mapping[str, str], kept: Path | None = None) -> Callable[[str], str]:
    """A function that creates a credential for a stream: from a job token if there is one, else with MUNGE.

    `kept`: the copy made by keep_token. The function raises CredentialError; a later call may succeed, such as after a
    restart of munged.
    """
    if kept is not None and kept.exists():
        return lambda stream: _with_token(kept, stream)
    if path := environment.get(TOKEN_VARIABLE):
        return lambda stream: _with_token(Path(path), stream)
    socket = environment.get(MUNGE_VARIABLE, "")
    return lambda stream: _with_munge(socket, stream)


def _with_token(path: Path, stream: str) -> str:
    try:
        token = msgspec.json.decode(path.read_bytes(), type=Token)
        proof = prove(token, stream, CLOCK.now(), secrets.token_hex(16))
    except OSError as error:
        raise CredentialError(f"job token {path}: {error.strerror}") from None
    except ValueError as error:
        raise CredentialError(f"job token {path}: {error}, expected one from `barograph keys token`") from None
    return "token:" + msgspec.json.encode(proof).decode()


def _with_munge(socket: str, stream: str) -> str:
    try:
        return "munge:" + munge.encode(payload(stream), socket)
    except munge.MungeError as error:
        raise CredentialError(f"{error}; no job token was given either ({TOKEN_VARIABLE})") from None


def _mac(key: bytes, *words: str) -> bytes:
    # Length prefixes: different lists of words never encode to the same text.
    text = "".join(f"{len(word)}:{word}" for word in words)
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
