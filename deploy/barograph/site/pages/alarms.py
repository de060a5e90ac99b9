"""Alarms: those that are on, and those of the last weeks."""

from __future__ import annotations

from typing import Any, NamedTuple

from barograph.site.pages.running import reporting
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row
from barograph.views.states import RECOVERED, SILENT, Shown, shown


class JobAlarm(NamedTuple):
    """A disturbance of a job: its row, and what it is called."""

    row: Row
    state: Shown


def view(context: ViewContext) -> dict[str, Any]:
    """Alarms of the jobs that the viewer may see: `now` are on, `past` are over or of jobs that ended or are silent."""
    now, past = [], []
    talking = reporting(context)
    for row in context.visible(queries.alarms(context.now), name="alarms"):
        if is_on(row, row["job"] in talking):
            now.append(JobAlarm(row, shown(row)))
        else:
            # What was wrong, not that it is over: the whole table is of what is over.
            past.append(JobAlarm(row, shown({**row, "score": 2.0})))
    return {"now": now, "past": past}


def is_on(row: Row, talking: bool) -> bool:
    """Whether an alarm is on: its job runs, is not silent unless it is stalled, and its score is above 1."""
    return row["ended_at"] is None and shown(row, not talking) not in (RECOVERED, SILENT)
