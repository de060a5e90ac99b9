"""A job of a scheduler's log, and what the scheduler has of it at its submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNKNOWN: Final = -1
"""A name or number that the scheduler does not have."""
RISKS: Final = (0.01, 0.05, 0.1)


@dataclass(frozen=True, slots=True)
class RuntimeForecast:
    """seconds: the expected runtime. limits: seconds, by risk; there may be none."""

    seconds: float
    limits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job at its submission. Numbers stand for names of users and the like; UNKNOWN where there is none.

    submitted: seconds since any fixed time. requested: the time limit that the user asked for, in seconds. memory: what
    the user asked for, in any unit.
    """

    submitted: float
    processors: float = UNKNOWN
    requested: float = UNKNOWN
    user: int = UNKNOWN
    executable: int = UNKNOWN
    queue: int = UNKNOWN
    group: int = UNKNOWN
    memory: float = UNKNOWN


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job that ran. started: seconds since the time that its submission counts from. runtime: seconds, above 0.

    failed: whether it did not end well, so that its runtime is not learned.
    """

    submitted: SubmittedJob
    started: float
    runtime: float
    failed: bool

    @property
    def ended(self) -> float:
        """Seconds, as `started`."""
        return self.started + self.runtime
