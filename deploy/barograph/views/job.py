"""A job with its latest score, its end and its prediction."""

from __future__ import annotations

import json
import math

from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row, limits
from barograph_agent.protocol.tables import MAX_TIME


def find(context: ViewContext, name: str) -> Row | None:
    """The row of `queries.job`, None where the log has no such job that the viewer may see.

    Numbers that are not finite are None; begin and end are times of the log's life. `members`: the nodes that the alarm
    is attributed to. `prediction`: lower, expected and upper runtime in seconds of the last prediction made while it
    ran, None where there is none.
    """
    found = [row for row in context.of_job(name, queries.job(name)) if context.viewer.may_see(row["user"])]
    if not found:
        return None
    finite = {key: value for key, value in found[0].items() if not isinstance(value, float) or math.isfinite(value)}
    row = dict.fromkeys(found[0]) | finite
    row["started_at"] = min(max(row["started_at"] or 0.0, 0.0), MAX_TIME)
    if found[0]["ended_at"] is not None:
        row["ended_at"] = MAX_TIME if row["ended_at"] is None else min(max(row["ended_at"], 0.0), MAX_TIME)
    row["members"] = json.loads(row["members"] or "[]")
    row["prediction"] = None if row["expected_seconds"] is None else limits(row)
    return row
