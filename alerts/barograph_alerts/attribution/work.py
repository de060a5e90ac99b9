"""Who did how much: what the ranks or nodes of a job did over a stretch of time. The input of attribution.

Recordings have it per rank, the log per node; what is made of it is the same.
"""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """One member of a job, a rank or a node, over one stretch.

    syncs: sync points. own_seconds: work of its own between them. wait_seconds: time in sync points and waiting for
    messages. blame_seconds: how long the others waited in those sync points to which it came last, their mean.
    said: what to call it where its name says only which part it plays, such as "the busiest rank".
    """

    name: str
    syncs: int
    own_seconds: float
    wait_seconds: float
    blame_seconds: float
    said: str = ""


class WorkSpan(NamedTuple):
    """All members over the same sync points, which ended at `ended_at` (Unix seconds).

    exact: own_seconds holds no waiting for messages. Where point-to-point calls were not timed it does.
    """

    ended_at: float
    members: tuple[Work, ...]
    exact: bool
