"""What tells the works of imported runs apart: what a scheduler's record has of what was asked for, as digests."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from barograph.imports.record import ASKED, RunRecord
from barograph.views.words import enumerated
from barograph_agent.settings import agent
from barograph_agent.work.evidence import WorkEvidence
from barograph_agent.work.salt import Salt
from barograph_modeler.recognition.request import RECORDED

FIELDS: Final = dict(zip(ASKED, RECORDED, strict=True))
"""Names in `works` by the fields of a line."""
_NUMBER: Final = re.compile(r"[0-9]+")


class UnreadableSalt(Exception):
    """The file of the secret cannot be used. The text names it and what was expected."""


class WorkDigests:
    """Makes rows of `works` under the secret of the site, or else of the cluster, as agents do.

    found: names in `works` of the fields that runs had.
    """

    def __init__(self, secret: bytes = b"", *, is_enabled: bool = True) -> None:
        self.found: set[str] = set()
        self._is_enabled = is_enabled
        self._salt = functools.cache(lambda cluster: Salt(secret or b"cluster " + cluster.encode()))

    @classmethod
    def of_site(cls, environment: Mapping[str, str]) -> WorkDigests:
        """As the settings of agents have it: `work` and `salt`. Raises UnreadableSalt and ConfigError."""
        known = agent.environment(environment)
        is_enabled = agent.value_or_default("work", known) != "none"
        path = known.get("BAROGRAPH_SALT")
        if not (path and is_enabled):
            return cls(is_enabled=is_enabled)
        try:
            secret = Path(path).read_bytes().strip()
        except OSError as error:
            raise UnreadableSalt(f"salt {path}: {error.strerror}") from error
        if not secret:
            raise UnreadableSalt(f"salt {path} is empty, expected a secret")
        return cls(secret)

    def note(self, record: RunRecord) -> None:
        """Count what a run has towards `found`."""
        if self._is_enabled:
            self.found.update(FIELDS[field] for field in record.asked)

    def row(self, record: RunRecord) -> dict[str, Any] | None:
        """The row of `works` of a run; None where nothing is known of what was asked for.

        The program is another one than that of any watched run: the two are never taken for one work.
        """
        if not (self._is_enabled and record.asked):
            return None
        salt = self._salt(record.job.cluster)
        evidence = WorkEvidence(
            program=salt.program(f"imported {record.job.app}".encode()),
            folder={FIELDS[field]: _digest(salt, text) for field, text in record.asked.items()},
        )
        return {
            "job": record.job.key,
            "ranks": record.ranks,
            "nodes": record.nodes,
            "ranks_per_node": math.ceil(record.ranks / record.nodes) if record.nodes else 0,
        } | evidence.columns()

    def sentence(self, refusal: str) -> str:
        """What works are told apart by; empty if runs had nothing of it. refusal: the collector's, if it refused."""
        if not self.found:
            return ""
        if refusal:
            return f"works are not told apart: refused by the collector: {refusal}"
        names = enumerated(["user", *(name for name in RECORDED if name in self.found)])
        return f"works are told apart by {names}: weaker than by what runs"


def _digest(salt: Salt, text: str) -> str:
    """The digest of a text with a mark for each number, and after `=` that of the numbers."""
    form, numbers = _NUMBER.sub("#", text), " ".join(_NUMBER.findall(text))
    digest = salt.word(form.encode(errors="replace"))
    return f"{digest}={salt.word(numbers.encode())}" if numbers else digest
