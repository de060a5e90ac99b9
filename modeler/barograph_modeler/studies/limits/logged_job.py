"""A job of a scheduler's log."""

from __future__ import annotations

from dataclasses import dataclass

from barograph_modeler.limits.job import SubmittedJob


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job that ran. started: seconds since the time that its submission counts from. runtime: seconds, above 0."""

    submitted: SubmittedJob
    started: float
    runtime: float
    failed: bool

    @property
    def ended(self) -> float:
        """Seconds, as `started`."""
        return self.started + self.runtime
