"""Alarms: those that are on, and those of the last weeks."""

from __future__ import annotations

from dataclasses import dataclass

from barograph.site import queries
from barograph.site.desk import Desk
from barograph.site.log import Row
from barograph.site.states import RECOVERED, Shown, shown


@dataclass(frozen=True)
class Alarm:
    """A disturbance of a job: its row, and what it is called."""

    row: Row
    state: Shown


@dataclass(frozen=True)
class View:
    """`now` are on, `past` are over or of jobs that have ended; the newest first."""

    now: list[Alarm]
    past: list[Alarm]


def view(desk: Desk) -> View:
    """Alarms of the jobs that the viewer may see. Raises Away."""
    rows = desk.mine(desk.ask(queries.alarms(desk.now), name="alarms"))
    return View(
        now=[Alarm(row, shown(row)) for row in rows if is_on(row)],
        past=[Alarm(row, _past(row)) for row in rows if not is_on(row)],
    )


def is_on(row: Row) -> bool:
    """Whether an alarm is on: its job runs, and its score is above 1."""
    return row["ended_at"] is None and shown(row) is not RECOVERED


def _past(row: Row) -> Shown:
    # What was wrong, not that it is over: this is the table of what is over.
    return shown({**row, "score": 2.0})
