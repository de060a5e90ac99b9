"""What a scheduler has recorded of the work of a run, as digests: for `works` of imported runs, and for questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barograph_agent.settings import agent
from barograph_agent.work.fingerprint import WorkEvidence
from barograph_agent.work.salt import Salt

_NUMBER: Final = re.compile(r"[0-9]+")


class UnreadableSalt(Exception):
    """The file of the secret cannot be used. The text names it and what was expected."""


def site_secret(environment: Mapping[str, str]) -> bytes:
    """The secret of the site, as the setting `salt` of agents has it; empty without one. Raises UnreadableSalt and
    ConfigError."""
    path = agent.environment(environment).get("BAROGRAPH_SALT")
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise UnreadableSalt(f"salt {path}: {error.strerror}") from error
    if not secret:
        raise UnreadableSalt(f"salt {path} is empty, expected a secret")
    return secret


def salt_of(secret: bytes, cluster: str) -> Salt:
    """The salt of a site, or else of a cluster, as agents have it."""
    return Salt(secret or b"cluster " + cluster.encode())


def recorded_evidence(salt: Salt, app: str, asked: Mapping[str, str]) -> WorkEvidence:
    """The evidence of a run. asked: texts by their names in `works`, of RECORDED.

    The program is another one than that of any watched run: the two are never taken for one work.
    """
    folder = {name: _digest(salt, text) for name, text in asked.items()}
    return WorkEvidence(program=salt.program(f"imported {app}".encode()), folder=folder)


def _digest(salt: Salt, text: str) -> str:
    """The digest of a text with a mark for each number, and after `=` that of the numbers."""
    form, numbers = _NUMBER.sub("#", text), " ".join(_NUMBER.findall(text))
    digest = salt.word(form.encode(errors="replace"))
    return f"{digest}={salt.word(numbers.encode())}" if numbers else digest
