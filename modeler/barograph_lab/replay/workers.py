"""What the workers of a recorded training did: rows of `workers`, as a sidecar writes them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import numpy as np

from barograph_agent.reduce.workers import WorkerSums
from barograph_agent.ring.reader import Ring
from barograph_lab.replay.ring import TraceRing
from barograph_lab.replay.trace import Trace

READ_SECONDS: Final = 1.0


class WorkerPage(NamedTuple):
    """Rows of all workers, without job and host."""

    ended_at: float
    rows: int
    columns: dict[str, Any]


def worker_pages(trace: Trace, ring: TraceRing) -> list[WorkerPage]:
    """The rows in the order of time; none if the trace lacks processor time, updates or sizes of a worker."""
    workers = sorted(trace.ranks)
    each = [trace.ranks[number] for number in workers]
    if len(each) < max(trace.size, 2) or any(one.used is None for one in each):
        return []
    count = min(int(one.synchronizing.sum()) for one in each) - 1
    if count < 1:
        return []
    steps = np.zeros((4, len(each), count), np.int64)
    for place, one in enumerate(each):
        at = np.flatnonzero(one.synchronizing)[: count + 1]
        enter, ends, p2p = one.enter[at], one.exit[at], one.p2p if one.p2p is not None else np.zeros_like(one.enter)
        assert one.used is not None
        assert one.updated is not None
        own, wait = enter[1:] - ends[:-1] - p2p[at][1:], ends[1:] - enter[1:]
        steps[:, place] = own, one.used[at][1:], one.updated[at][1:], wait
    first, at = each[0], np.flatnonzero(each[0].synchronizing)[1 : count + 1]
    assert first.bytes is not None
    ended, sizes, sums = first.exit[at], first.bytes[at], WorkerSums(0, workers)
    slots = ended * 1e-9 // READ_SECONDS
    starts = np.flatnonzero(np.diff(slots, prepend=-1))
    pages = []
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), count], strict=True):
        exits = int(ended[start]), int(ended[start:stop].max())
        sums.add(steps[:, :, start:stop].sum(axis=2), stop - start, exits, int(sizes[stop - 1]))
        # A TraceRing has the times of a Ring that the sums use.
        if (columns := sums.take(cast(Ring, ring))) is not None:
            pages.append(WorkerPage(float(columns["ended_at"]), len(workers), columns))
    return pages
