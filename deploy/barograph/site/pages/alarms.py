"""Alarms: active ones, and past ones of the last weeks."""

from __future__ import annotations

from typing import Any, Final

from barograph.site.pages.running import reporting
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.states import RECOVERED, SILENT, display_state
from barograph.views.words import finite

MAX_NODES: Final = 50


def view(context: ViewContext) -> dict[str, Any]:
    """The alarms that the viewer may see: `now` are active, `past` are over or of ended or silent jobs.

    Each is a row with the displayed state in `shown`. nodes: suspected ones, for viewers who may see all jobs.
    """
    now, past = [], []
    senders = reporting(context)
    rows = context.visible(queries.alarms(context.now), name="alarms")
    for row in sorted(rows, key=lambda row: -row["alarmed_at"] if finite(row["alarmed_at"]) else 0.0):
        silent = row["job"] not in senders
        if row["ended_at"] is None and display_state(row, silent) not in (RECOVERED, SILENT):
            now.append(row | {"shown": display_state(row)})
        else:
            # The state of the alarm, not "recovered": every alarm in this list is over.
            past.append(row | {"shown": display_state(row | {"score": 2.0})})
    nodes = context.rows(queries.suspects(MAX_NODES)) if context.user is None else []
    return {"now": now, "past": past, "nodes": [row for row in nodes if row["suspected"]]}
