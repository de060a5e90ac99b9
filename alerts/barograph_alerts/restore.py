"""What the scorer reads of the log at its start: as much as it keeps, whatever the length of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from barograph_alerts.processor import MAX_JUDGED, Scorer
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.runner import observe
from barograph_collector.daemon.sources import FollowedCollector

MAX_ROWS: Final = 200_000
"""Latest rows of a table that are read."""
MAX_SCORES: Final = 4 * MAX_JUDGED
"""The same of `scores`, of which a job has several."""
MAX_OPEN_DAYS: Final = 30
"""A job whose row is older and that has no end is given up: its end was lost, and all blocks since would be read."""
LATEST: Final = ("paces", "bands", "events", "sites", "runs", "predictions", "phases", "nodes")
SINCE_OPEN: Final = ("features", "node_blocks", "workers", "pressures", "blocks", "silences", "signatures")
"""Tables that are read from the begin of the first job without a final verdict."""


def restore(scorer: Scorer, sources: Sequence[FollowedCollector], now: float) -> None:
    """Bring a new scorer to where a former one was, and followers to where they read on. now: Unix seconds.

    Raises LogUnavailable and ReadRefused; it may be called again then, and for further collectors later.
    """
    # Verdicts of all, before jobs of any.
    starts = [_read_scores(scorer, source, now) for source in sources]
    jobs = [_read(scorer, source, "jobs", now) for source in sources]
    begun = set().union(*jobs)
    assigned = [_read(scorer, source, "assignments", now) - begun for source in sources]
    for source, start, names in zip(sources, starts, map(set.union, jobs, assigned), strict=True):
        offsets = source.follower.offsets
        # Of older jobs the verdict may be before what was read.
        scorer.forget_before(start, names)
        scorer.give_up_before(_first_offset(source.reader), names)
        for table in offsets.keys() & set(LATEST):
            offsets[table] = source.reader.before_latest(table, MAX_ROWS)
        for table in SINCE_OPEN:
            offsets[table] = scorer.first_open_offset(names, offsets["jobs"])


def _read_scores(scorer: Scorer, source: FollowedCollector, now: float) -> int:
    """Read the latest scores; the offset of the first, 0 where all were read."""
    first, rows = 0, 0
    for page in source.reader.read_latest("scores", MAX_SCORES):
        first = first or int(page.columns["offset"][0])
        rows += page.rows
        observe(scorer, "scores", page.columns, now)
    return first if rows >= MAX_SCORES else 0


def _read(scorer: Scorer, source: FollowedCollector, table: str, now: float) -> set[str]:
    """Read the latest rows of a table, and go on behind them; their jobs."""
    jobs: set[str] = set()
    for page in source.reader.read_latest(table, MAX_ROWS):
        observe(scorer, table, page.columns, now)
        source.note(table, page.columns)
        source.follower.offsets[table] = page.next_offset
        jobs.update(page.columns["job"])
    return jobs


def _first_offset(reader: LogReader) -> int:
    """The first offset of the day MAX_OPEN_DAYS before the newest, whatever the clocks of nodes; 0 if there is none."""
    newest = "(SELECT max(day) FROM partitions)"
    answer = reader.query(f"SELECT max(first_offset) AS first FROM partitions WHERE day <= {newest} - {MAX_OPEN_DAYS}")
    return int(pa.ipc.open_stream(answer.stream).read_all()["first"][0].as_py() or 0)
