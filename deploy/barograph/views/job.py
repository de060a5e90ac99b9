"""A job as it is shown: its description, its latest score, its end and its prediction."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row, limits


@dataclass(frozen=True)
class JobSummary:
    """A row of `queries.job`. Times are Unix seconds, None where there is none."""

    row: Row

    @property
    def started_at(self) -> float:
        """When its first process started."""
        return float(self.row["started_at"])

    @property
    def ended(self) -> bool:
        """Whether the log has its end."""
        return self.row["ended_at"] is not None

    @property
    def onset_at(self) -> float | None:
        """Since when it has been as it was when it alarmed."""
        return self._time("onset_at")

    @property
    def alarmed_at(self) -> float | None:
        """When the latest alarm was raised."""
        return self._time("alarmed_at")

    @property
    def recovered_at(self) -> float | None:
        """When the latest alarm was over."""
        return self._time("recovered_at")

    @property
    def members(self) -> Sequence[str]:
        """The nodes that the alarm is attributed to."""
        return [str(name) for name in json.loads(self.row["members"] or "[]")]

    @property
    def prediction(self) -> tuple[float, float, float] | None:
        """Lower, expected and upper runtime in seconds, as they were last predicted while it ran."""
        return limits(self.row) if self._time("expected_seconds") is not None else None

    def _time(self, name: str) -> float | None:
        at = self.row[name]
        return float(at) if at is not None and math.isfinite(at) else None


def find(context: ViewContext, name: str) -> JobSummary | None:
    """The job of this name, if the log has one that the viewer may see."""
    found = context.visible(queries.job(name))
    return JobSummary(found[0]) if found else None
