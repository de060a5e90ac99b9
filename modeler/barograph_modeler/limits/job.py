"""What a scheduler has of a job at its submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNKNOWN: Final = -1
"""A name or number that the scheduler does not have."""


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
