"""What the scorer reads of the log at its start: as much as it keeps, whatever the length of the log."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from barograph_alerts.processor import MAX_JUDGED, Scorer
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.runner import observe

MAX_ROWS: Final = 200_000
"""Latest rows of a table that are read."""
MAX_SCORES: Final = 4 * MAX_JUDGED
"""The same of `scores`, of which a job has several."""
MAX_OPEN_DAYS: Final = 30
"""A job whose row is older and that has no end is given up: its end was lost, and all blocks since would be read."""
WHOLE: Final = ("jobs", "assignments")
LATEST: Final = ("paces", "bands", "events", "sites", "runs", "predictions", "phases", "nodes")
SINCE_OPEN: Final = ("features", "node_blocks", "workers", "pressures", "blocks", "silences", "signatures")
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
    scorer.forget_before(first if rows >= MAX_SCORES else 0)
    scorer.give_up_before(_first_offset(reader))
    for table in LATEST:
        follower.offsets[table] = reader.before_latest(table, MAX_ROWS)
    for table in SINCE_OPEN:
        follower.offsets[table] = scorer.first_open_offset


def _first_offset(reader: LogReader) -> int:
    """The first offset of the day MAX_OPEN_DAYS before the newest, whatever the clocks of nodes; 0 if there is none."""
    newest = "(SELECT max(day) FROM partitions)"
    answer = reader.query(f"SELECT max(first_offset) AS first FROM partitions WHERE day <= {newest} - {MAX_OPEN_DAYS}")
    return int(pa.ipc.open_stream(answer.stream).read_all()["first"][0].as_py() or 0)
