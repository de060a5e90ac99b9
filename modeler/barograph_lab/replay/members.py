"""The work and waiting of each recorded rank, second by second: the input of attribution."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_alerts.attribution.work import Work, WorkSpan
from barograph_lab.replay.trace import RankTrace, Trace

STRETCH_SECONDS: Final = 1.0

Floats = npt.NDArray[np.float64]


def stretches(trace: Trace) -> list[WorkSpan]:
    """The work of all recorded ranks in the order of time. Empty if only rank 0 of several was recorded, or
    messages were not timed.

    The i-th sync point is the same collective on every rank, so no clocks are compared.
    """
    if len(trace.ranks) == 1 < trace.size or any(rank.p2p is None for rank in trace.ranks.values()):
        return []
    parts = {number: _between_syncs(rank) for number, rank in trace.ranks.items()}
    count = min(own.size for own, _, _ in parts.values())
    if count == 0:
        return []
    own = np.stack([part[0][:count] for part in parts.values()])
    elsewhere = np.stack([part[1][:count] for part in parts.values()])
    inside = np.stack([part[2][:count] for part in parts.values()])
    exit_ns = trace.ranks[0].exit[trace.ranks[0].synchronizing][1 : count + 1]
    ended_at = trace.started_unix_ns * 1e-9 + exit_ns * 1e-9
    slots = (exit_ns - exit_ns[0]) * 1e-9 // STRETCH_SECONDS
    starts = np.flatnonzero(np.diff(slots, prepend=-1))
    found = []
    for start, stop in zip(starts, [*starts[1:], count], strict=True):
        part = slice(int(start), int(stop))
        members = tuple(
            Work(
                name=f"rank {number}",
                syncs=int(stop - start),
                own_seconds=float(own[row, part].sum()),
                wait_seconds=float(elsewhere[row, part].sum() + inside[row, part].sum()),
            )
            for row, number in enumerate(parts)
        )
        found.append(WorkSpan(float(ended_at[part.stop - 1]), members))
    return found


def _between_syncs(rank: RankTrace) -> tuple[Floats, Floats, Floats]:
    """From each sync point to the next, in seconds: own work, waiting elsewhere, waiting in the next sync point."""
    at = np.flatnonzero(rank.synchronizing)
    duration = rank.exit - rank.enter
    p2p = rank.p2p if rank.p2p is not None else np.zeros_like(duration)
    inside = duration[at][1:].astype(np.int64)
    gap = np.diff(rank.exit[at]) - inside
    others = np.diff(np.cumsum(duration)[at]) - inside + np.diff(np.cumsum(p2p)[at])
    own, elsewhere, waited = (np.asarray(part * 1e-9, np.float64) for part in (gap - others, others, inside))
    return own, elsewhere, waited
