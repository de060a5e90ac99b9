"""What the ranks of one world on this node do in each class of intervals, over a whole run: rows of `phases`.

An interval is the longest own work of a rank, what the last rank arrives after that (`exchange`), and the time of the
last rank in the collective.

Sums are kept in memory until the run ends. A sidecar that continues after one that was killed has no rows.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MAX_CLASSES: Final = 64
"""Classes that are summed, the first ones of a run."""
MAX_ROWS: Final = 16
"""Classes that are reported, those with most time of the ranks."""
MIN_SHARE: Final = 0.002
"""Share of that time from which a class is reported."""
MAX_SAMPLED: Final = 4096
"""Values of own work per class and block whose distribution is recorded; of more, evenly spaced ones."""
PER_DECADE: Final = 6
SMALLEST: Final = 1e-3
"""Absolute deviation, as a share of the mean, below which all are in one bin."""
DECADES: Final = 5
BINS: Final = 2 * PER_DECADE * DECADES + 1

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class PhaseSums:
    """Sums by class. `add` is called for consecutive ranges of sync points of the same ranks."""

    def __init__(self, world: int, ranks: int) -> None:
        self._world = world
        self._ranks = ranks
        self._classes: dict[int, _Class] = {}

    def add(self, classes: npt.NDArray[np.uint64], times: Integers, sent: Integers) -> None:
        """Add sync points that all ranks have.

        classes: (n,) ids. times: (ranks, 4, n), enter, exit, gap and time in point-to-point calls, nanoseconds. sent:
        (3, n), bytes of the collective in the lowest rank, 0 where unknown; messages of all ranks, and their bytes.
        """
        ids, inverse = np.unique(classes, return_inverse=True)
        for number, class_id in enumerate(ids.tolist()):
            if class_id not in self._classes:
                if len(self._classes) >= MAX_CLASSES:
                    continue
                self._classes[class_id] = _Class(self._ranks)
            chosen = inverse == number
            whole = len(ids) == 1
            self._classes[class_id].add(times if whole else times[:, :, chosen], sent if whole else sent[:, chosen])

    def take(self) -> dict[str, Any] | None:
        """The columns of `phases` without job, host and time, and start again; None if there is nothing to report."""
        found, self._classes = self._classes, {}
        total = sum(one.seconds for one in found.values())
        most = sorted(found, key=lambda class_id: (-found[class_id].seconds, class_id))[:MAX_ROWS]
        busiest = int(sum((one.own for one in found.values()), np.zeros(self._ranks)).argmax())
        chosen = [class_id for class_id in most if found[class_id].seconds > MIN_SHARE * total]
        rows = [(class_id, found[class_id].row(busiest)) for class_id in chosen]
        if not rows:
            return None
        columns: dict[str, Any] = {name: [row[name] for _, row in rows] for name in rows[0][1]}
        return {"world": self._world, "ranks": self._ranks, "class_id": [class_id for class_id, _ in rows]} | columns


class _Class:
    """Sums of one class. Times are nanoseconds."""

    def __init__(self, ranks: int) -> None:
        self._count = 0
        self._own: Floats = np.zeros(ranks)
        self._sums: Floats = np.zeros(5)
        self._sent: Floats = np.zeros(3)
        self._bin_counts: Floats = np.zeros(BINS)
        self._bin_sums: Floats = np.zeros(BINS)

    @property
    def own(self) -> Floats:
        """Own work of each rank."""
        return self._own

    @property
    def seconds(self) -> float:
        """Time of all ranks in intervals of this class."""
        return float(self._own.sum() + self._sums[3] + self._sums[4]) * 1e-9

    def add(self, times: Integers, sent: Integers) -> None:
        """As PhaseSums.add, of one class."""
        enter, exits, gap, p2p = times.swapaxes(0, 1)
        own, wait = gap - p2p, exits - enter
        self._count += own.shape[1]
        self._own += own.sum(axis=1)
        slowest = own.max(axis=0)
        self._sums += [slowest.sum(), (gap.max(axis=0) - slowest).sum(), wait.min(axis=0).sum(), p2p.sum(), wait.sum()]
        self._sent += sent.sum(axis=1)
        self._record(own)

    def _record(self, own: Integers) -> None:
        """Add deviations from the means of ranks so far, as shares of the mean of all."""
        means = self._own / self._count
        mean = means.mean()
        if mean <= 0:
            return
        step = -(-own.size // MAX_SAMPLED)
        chosen = np.arange(0, own.size, step)
        rank, point = np.divmod(chosen, own.shape[1])
        deviations = (own[rank, point] - means[rank]) / mean
        # Each sample stands for `step` values.
        bins = deviation_bins(deviations)
        self._bin_counts += step * np.bincount(bins, minlength=BINS)
        self._bin_sums += step * np.bincount(bins, deviations, BINS)

    def row(self, busiest: int) -> dict[str, Any]:
        """The columns of a row but its keys. busiest: the place of the rank with most own work in all classes."""
        ranks = self._own.size
        means = self._own / self._count * 1e-9
        slowest, exchange, least_wait, p2p, wait = (self._sums * 1e-9).tolist()
        size, messages, message_bytes = self._sent.tolist()
        filled = self._bin_counts > 0
        counts = self._bin_counts[filled]
        deviations = self._bin_sums[filled] / counts
        order = np.argsort(deviations, kind="stable")
        return {
            "count": self._count,
            "own_seconds": float(self._own.sum()) * 1e-9,
            "p2p_seconds": max(p2p, 0.0),
            "wait_seconds": max(wait, 0.0),
            "slowest_seconds": slowest,
            "exchange_seconds": max(exchange, 0.0),
            "least_wait_seconds": max(least_wait, 0.0),
            "rank_deviation_seconds": float(means.std(ddof=1)) if ranks > 1 else math.nan,
            "bytes": int(size),
            "messages": int(messages),
            "message_bytes": int(message_bytes),
            "deviations": _numbers(deviations[order]),
            "shares": _numbers((counts / counts.sum())[order]) if counts.size else "[]",
            "busiest_seconds": max(float(self._own[busiest]) * 1e-9, 0.0),
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
