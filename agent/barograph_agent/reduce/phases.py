"""What the ranks of one world on this node do in each class of intervals, over a whole run: rows of `phases`.

An interval is the longest own work of a rank, what the last rank arrives after that (`exchange`), and the time of the
last rank in the collective.

Sums are kept in memory until the run ends. A sidecar that continues after one that was killed has no rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from barograph_agent.reduce.library import Block

MAX_ROWS: Final = 16
"""Classes that are reported, those with most time of the ranks."""
MIN_SHARE: Final = 0.002
"""Share of that time from which a class is reported."""
PER_DECADE: Final = 6
SMALLEST: Final = 1e-3
"""Absolute deviation, as a share of the mean, below which all are in one bin."""
DECADES: Final = 5
BINS: Final = 2 * PER_DECADE * DECADES + 1
EDGES: Final = 10 ** (np.arange(PER_DECADE * DECADES) / PER_DECADE)
"""Lower ends of the bins in one direction, over SMALLEST."""

Floats = npt.NDArray[np.float64]


def pop_phases(block: Block, world: int, class_of: Callable[[int], int]) -> dict[str, Any] | None:
    """The columns of `phases` without job, host and time, once; None if there is nothing to report.

    class_of: the id of the class of each pair of call sites.
    """
    found: dict[int, np.void] = {}
    for number, pair in enumerate(block.pairs):
        sums, class_id = block.classes[number], class_of(pair)
        if class_id in found:
            for name in sums.dtype.names or ():
                found[class_id][name] += sums[name]
        elif sums["count"][0]:
            found[class_id] = sums.copy()
    block.classes[:] = 0
    ranks = block.classes["own"].shape[1]
    seconds = {class_id: _seconds(sums) for class_id, sums in found.items()}
    busiest = int(sum((sums["own"] for sums in found.values()), np.zeros(ranks)).argmax())
    most = sorted(found, key=lambda class_id: (-seconds[class_id], class_id))[:MAX_ROWS]
    chosen = [class_id for class_id in most if seconds[class_id] > MIN_SHARE * sum(seconds.values())]
    if not chosen:
        return None
    rows = [_row(found[class_id], busiest) for class_id in chosen]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return {"world": world, "ranks": ranks, "class_id": chosen} | columns


def _seconds(sums: np.void) -> float:
    """Time of all ranks in intervals of a class."""
    return float(sums["own"].sum() + sums["times"][3] + sums["times"][4]) * 1e-9


def _row(sums: np.void, busiest: int) -> dict[str, Any]:
    """The columns of a row but its keys. busiest: the place of the rank with most own work in all classes."""
    own, count = sums["own"] * 1e-9, int(sums["count"][0])
    means = own / count
    slowest, exchange, least_wait, p2p, wait = (sums["times"] * 1e-9).tolist()
    size, messages, message_bytes = sums["sent"].tolist()
    filled = sums["bin_counts"] > 0
    counts = sums["bin_counts"][filled]
    deviations = sums["bin_sums"][filled] / counts
    order = np.argsort(deviations, kind="stable")
    return {
        "count": count,
        "own_seconds": float(own.sum()),
        "p2p_seconds": max(p2p, 0.0),
        "wait_seconds": max(wait, 0.0),
        "slowest_seconds": slowest,
        "exchange_seconds": max(exchange, 0.0),
        "least_wait_seconds": max(least_wait, 0.0),
        "rank_deviation_seconds": float(means.std(ddof=1)) if own.size > 1 else math.nan,
        "bytes": int(size),
        "messages": int(messages),
        "message_bytes": int(message_bytes),
        "deviations": _numbers(deviations[order]),
        "shares": _numbers((counts / counts.sum())[order]) if counts.size else "[]",
        "busiest_seconds": max(float(own[busiest]), 0.0),
    }


def deviation_bins(deviations: Floats) -> npt.NDArray[np.int64]:
    """The bin of each deviation, 0 to BINS - 1: logarithmic in both directions from SMALLEST on.

    >>> deviation_bins(np.array([-1e9, -1e-3, 0.0, 2e-3, 1.0])).tolist()
    [0, 29, 30, 32, 49]
    """
    size = np.log10(np.maximum(np.abs(deviations), SMALLEST) / SMALLEST) * PER_DECADE
    steps = np.minimum(np.floor(size).astype(np.int64) + 1, PER_DECADE * DECADES)
    steps[np.abs(deviations) < SMALLEST] = 0
    return np.asarray(PER_DECADE * DECADES + np.sign(deviations).astype(np.int64) * steps)


def _numbers(values: Floats) -> str:
    """A JSON list with four significant digits.

    >>> _numbers(np.array([0.123456, -2e-05]))
    '[0.1235, -2e-05]'
    """
    return json.dumps([float(f"{value:.4g}") for value in values.tolist()])
