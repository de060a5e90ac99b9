"""A past run, and lines that are none."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeAlias

from barograph_agent.job.identity import Job, clean
from barograph_agent.protocol.tables import APP, MAX_APP, MAX_RANKS

ASKED: Final = ("job_name", "script", "requested_time", "requested_memory")
"""Fields that tell works apart."""
_PATH: Final = re.compile(r"[./]*/")
_COUNT: Final = re.compile(r"[0-9]{1,10}(\.0*)?")


class UnreadableLine(ValueError):
    """A line that cannot be read. The text names the field, its value and what was expected."""


class Bad(NamedTuple):
    """A line that cannot be read, and why."""

    line: int
    reason: str


class Skipped(NamedTuple):
    """A line that is not imported although it can be read. state: the reason, such as FAILED."""

    line: int
    state: str


class UnusedColumns(NamedTuple):
    """Columns of which nothing is imported."""

    names: Sequence[str]


@dataclass(frozen=True)
class RunRecord:
    """One run that has ended well. started_at, ended_at: Unix seconds, 0 if unknown. nodes: 0 if unknown.

    asked: what the record has of what was asked for, by field; no empty text.
    """

    line: int
    job: Job
    ranks: int
    nodes: int
    seconds: float
    started_at: float = 0.0
    ended_at: float = 0.0
    asked: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of `jobs` and of `runs`, as of a watched run."""
        job = self.job.row(self.ranks, self.nodes, self.started_at)
        run = {
            "job": self.job.key,
            "ended_at": self.ended_at,
            "runtime_seconds": self.seconds,
            "exit_status": 0,
            "intervals": 0,
            "dropped": 0,
            "imported": 1,
        }
        return {"jobs": job, "runs": run}


Entry: TypeAlias = RunRecord | Skipped | Bad | UnusedColumns


def app_name(text: str) -> str:
    """The name of an application: the last part of a path, other characters as "-". Raises UnreadableLine."""
    name = PurePath(text).name if _PATH.match(text) else text
    if not APP.fullmatch(name):
        name = clean(name, "", MAX_APP)
    if not name:
        raise UnreadableLine(f"app is {text[:80]!r}, expected a name")
    return name


def count(name: str, text: str) -> int:
    """A whole number from 1 to MAX_RANKS. Raises UnreadableLine."""
    number = int(float(text)) if _COUNT.fullmatch(text) else 0
    if not 1 <= number <= MAX_RANKS:
        raise UnreadableLine(f"{name} is {text[:80]!r}, expected a whole number from 1 to {MAX_RANKS}")
    return number
