"""A run of the past, and lines that are none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeAlias

from barograph_agent.job.identity import Job, clean
from barograph_agent.protocol.tables import IDENTIFIER
from barograph_modeler.scaling.history import MOST_RANKS

APP_LIMIT: Final = 40
_PATH: Final = re.compile(r"[./]*/")
_COUNT: Final = re.compile(r"[0-9]{1,10}(\.0*)?")


class UnreadableLine(ValueError):
    """A line that is no run. The text names the field, its value and what was expected."""


class Bad(NamedTuple):
    """A line that cannot be read, and why."""

    line: int
    reason: str


class Skipped(NamedTuple):
    """A line that can be read but is not to be learned from. state: the reason, such as FAILED."""

    line: int
    state: str


@dataclass(frozen=True)
class RunRecord:
    """One run that has ended well. started_at, ended_at: Unix seconds, 0 where not known. nodes: 0 where not known."""

    line: int
    job: Job
    ranks: int
    nodes: int
    seconds: float
    started_at: float = 0.0
    ended_at: float = 0.0
    rows: dict[str, dict[str, Any]] = field(init=False, repr=False)
    """The row of `jobs` and the row of `runs`, as a watched run would have left them."""

    def __post_init__(self) -> None:
        job = self.job.row(self.ranks, self.nodes, self.started_at)
        run = {
            "job": self.job.key,
            "ended_at": self.ended_at,
            "runtime_seconds": self.seconds,
            "exit_status": 0,
            "intervals": 0,
            "dropped": 0,
        }
        object.__setattr__(self, "rows", {"jobs": job, "runs": run})


Entry: TypeAlias = RunRecord | Skipped | Bad


def app_name(text: str) -> str:
    """A name as `barograph run` takes it: of a path the last part, other characters as "-". Raises Unreadable."""
    name = PurePath(text).name if _PATH.match(text) else text
    if len(name) > APP_LIMIT or not IDENTIFIER.fullmatch(name):
        name = clean(name, "", APP_LIMIT)
    if not name:
        raise UnreadableLine(f"app is {text[:80]!r}, expected a name")
    return name


def count(field_name: str, text: str, most: int = MOST_RANKS) -> int:
    """A whole number from 1 to `most`. Raises Unreadable."""
    number = int(float(text)) if _COUNT.fullmatch(text) else 0
    if not 1 <= number <= most:
        raise UnreadableLine(f"{field_name} is {text[:80]!r}, expected a whole number from 1 to {most}")
    return number


def nodes_of(text: str, ranks: int) -> int:
    """How many nodes; 0 for an empty text. Raises Unreadable for more nodes than ranks."""
    nodes = count("nodes", text) if text else 0
    if nodes > ranks:
        raise UnreadableLine(f"nodes is {nodes}, expected at most the {ranks} ranks")
    return nodes
