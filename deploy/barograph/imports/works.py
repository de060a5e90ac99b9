"""What tells the works of imported runs apart: what a scheduler's record has of what was asked for, as digests."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from typing import Any, Final

from barograph.imports.record import ASKED, RunRecord, UnreadableLine
from barograph.imports.times import duration
from barograph.views.words import enumerated
from barograph_agent.settings import agent
from barograph_modeler.recognition.recorded import recorded_evidence, salt_of, site_secret
from barograph_modeler.recognition.request import RECORDED

FIELDS: Final = dict(zip(ASKED, RECORDED, strict=True))
"""Names in `works` by the fields of a line."""


class WorkDigests:
    """Makes rows of `works` under the secret of the site, or else of the cluster, as agents do.

    found: names in `works` of the fields that runs had.
    """

    def __init__(self, secret: bytes = b"", *, is_enabled: bool = True) -> None:
        self.found: set[str] = set()
        self._is_enabled = is_enabled
        self._salt = functools.cache(functools.partial(salt_of, secret))

    @classmethod
    def of_site(cls, environment: Mapping[str, str]) -> WorkDigests:
        """As the settings of agents have it: `work` and `salt`. Raises UnreadableSalt and ConfigError."""
        known = agent.environment(environment)
        is_enabled = agent.value_or_default("work", known) != "none"
        return cls(site_secret(environment) if is_enabled else b"", is_enabled=is_enabled)

    def note(self, record: RunRecord) -> None:
        """Count what a run has towards `found`."""
        if self._is_enabled:
            self.found.update(FIELDS[field] for field in record.asked)

    def row(self, record: RunRecord) -> dict[str, Any] | None:
        """The row of `works` of a run; None where nothing is known of what was asked for."""
        if not (self._is_enabled and record.asked):
            return None
        asked = {FIELDS[field]: _plain(field, text) for field, text in record.asked.items()}
        evidence = recorded_evidence(self._salt(record.job.cluster), record.job.app, asked)
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


def _plain(field: str, text: str) -> str:
    """A time in seconds, whatever its form; another text as it is."""
    with contextlib.suppress(UnreadableLine):
        return f"{duration(field, text):g}" if field == "requested_time" else text
    return text
