"""Alarms: those that are on, and those of the last weeks."""

from __future__ import annotations

from dataclasses import dataclass

from barograph.site import queries
from barograph.site.desk import RequestContext
from barograph.site.log import Row
from barograph.site.running import heard
from barograph.site.states import RECOVERED, SILENT, Shown, shown


@dataclass(frozen=True)
class AlarmRow:
    """A disturbance of a job: its row, and what it is called."""

    row: Row
    state: Shown


@dataclass(frozen=True)
class AlarmsView:
    """`now` are on, `past` are over or of jobs that have ended or fallen silent; the newest first."""

    now: list[AlarmRow]
    past: list[AlarmRow]


def view(desk: RequestContext) -> AlarmsView:
    """Alarms of the jobs that the viewer may see. Raises Away."""
    rows = desk.mine(desk.ask(queries.alarms(desk.now), name="alarms"))
    talking = heard(desk)
    on = [is_on(row, row["job"] in talking) for row in rows]
    return AlarmsView(
        now=[AlarmRow(row, shown(row)) for row, yes in zip(rows, on, strict=True) if yes],
        past=[AlarmRow(row, _past(row)) for row, yes in zip(rows, on, strict=True) if not yes],
    )


def is_on(row: Row, talking: bool) -> bool:
    """Whether an alarm is on: its job runs, still says something unless it is stalled, and its score is above 1."""
    return row["ended_at"] is None and shown(row, not talking) not in (RECOVERED, SILENT)


def _past(row: Row) -> Shown:
    # What was wrong, not that it is over: this is the table of what is over.
    return shown({**row, "score": 2.0})
