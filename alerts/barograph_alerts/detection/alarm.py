"""Alarms, and the states of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["unknown", "healthy", "inconclusive", "slow", "stalled"]
Kind: TypeAlias = Literal["slow", "stalled"]
Basis: TypeAlias = Literal[
    "its history", "its own first windows", "its runtimes", "scaling", "its pace before", "the other workers"
]
"""`its pace before`: that of its nodes, when none of them was slow. `the other workers`: of a training."""


ALPHA: Final = 0.01
"""Bound on the share of healthy jobs that ever alarm, unless it is set."""
MARGIN: Final = 0.05
"""Slowdown that does not matter, unless it is set: 0.05 is 5 %."""


@dataclass
class Alarm:
    """One disturbance of one job. Times are Unix seconds; `ended_at` is None while it lasts.

    slowdown: actual over expected time, from the onset to the strongest evidence; NaN for a stall.
    basis: the reference of the comparison.
    """

    kind: Kind
    basis: Basis
    onset_at: float
    detected_at: float
    slowdown: float
    score: float
    ended_at: float | None = None
