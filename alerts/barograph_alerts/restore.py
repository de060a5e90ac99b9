"""What the scorer reads of the log at its start: as much as it keeps, whatever the length of the log."""

from __future__ import annotations

from typing import Final

from barograph_alerts.processor import MAX_JUDGED, Scorer
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.runner import observe

MAX_ROWS: Final = 200_000
"""Latest rows of a table that are read."""
MAX_SCORES: Final = 4 * MAX_JUDGED
"""The same of `scores`, of which a job has several."""
MAX_OPEN_SECONDS: Final = 30 * 86_400.0
"""A job that began earlier and has no end is given up: its end was lost, and all blocks since would be read."""
WHOLE: Final = ("jobs", "assignments")
LATEST: Final = ("paces", "bands", "events", "sites", "runs", "predictions")
SINCE_OPEN: Final = ("features", "node_blocks", "pressures", "blocks", "silences", "signatures")
"""Tables that are read from the begin of the first job without a final verdict."""


def restore(scorer: Scorer, follower: Follower, reader: LogReader, now: float) -> None:
    """Bring a new scorer to where a former one was, and the follower to where it reads on. now: Unix seconds.

    Raises LogUnavailable and ReadRefused; it may be called again then.
    """
    first, rows = 0, 0
    for page in reader.read_latest("scores", MAX_SCORES):
        first = first or int(page.columns["offset"][0])
        rows += page.rows
        observe(scorer, "scores", page.columns, now)
    for table in WHOLE:
        for page in reader.read_latest(table, MAX_ROWS):
            observe(scorer, table, page.columns, now)
            follower.offsets[table] = page.next_offset
    # Of older jobs the verdict may be before what was read.
    scorer.give_up_before(first if rows >= MAX_SCORES else 0, now - MAX_OPEN_SECONDS)
    for table in LATEST:
        follower.offsets[table] = reader.before_latest(table, MAX_ROWS)
    for table in SINCE_OPEN:
        follower.offsets[table] = scorer.first_open_offset
