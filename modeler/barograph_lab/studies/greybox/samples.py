"""Training vectors of the grey-box model: Alasandagutti et al. (2024), section 3, equations (7) and (8).

A vector is [m_original, w, C1 .. C5], C = (N, m, tau) with one level of parallelism and (N, N_nodes, N_cores, m, tau)
with two. C1 .. C4 are runs with 1 < N <= c_h, c_h = c_f / 2, C5 is the run to predict, all of one size. tau of C5 is
the target, so a vector has 2 + 5 x 3 - 1 = 16 features, or 2 + 5 x 5 - 1 = 26. The paper prints the vector to
predict from as [C1, ..., (C5 - tau5)]: typeset as a subtraction, meant as "without tau5", and without m_original and w.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

CONTEXT: Final = 4
"""Runs at small scale in a vector."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Points:
    """Runs with Amdahl's terms; columns of one length.

    group: the runs of one vector share it: same problem, same size, same original. w: m_original / m. nodes: NaN if
    unknown. tau: NaN for points to predict.
    """

    group: npt.NDArray[np.intp]
    w: Floats
    ranks: Floats
    nodes: Floats
    size: Floats
    tau: Floats

    @classmethod
    def of(cls, runs: Runs, group: npt.NDArray[np.intp], w: Floats, tau: Floats) -> Points:
        """Points of runs."""
        return cls(group, w, runs.ranks, runs.nodes, runs.size, tau)

    def joined(self, other: Points) -> Points:
        """These points, then the other's."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Points(*(np.concatenate(pair) for pair in pairs))

    def select(self, rows: Rows | npt.NDArray[np.bool_]) -> Points:
        """Some of the points."""
        return Points(*(column[rows] for column in vars(self).values()))

    @property
    def levels(self) -> int:
        """Levels of parallelism: 2 if nodes are known and ranks per node differ."""
        known = not np.isnan(self.nodes).any()
        return 2 if known and np.unique(self.ranks / self.nodes).size > 1 else 1


def feature_names(levels: int) -> list[str]:
    """What each feature of a vector is: names repeat over the five runs of a vector."""
    run = ["processes", "m", "tau"] if levels == 1 else ["processes", "nodes", "processes per node", "m", "tau"]
    return ["m_original", "w", *(run * (CONTEXT + 1))[:-1]]


def with_originals(points: Points, serial: Mapping[float, float]) -> Points:
    """The points once per original: paired with the serial run of each size up to their own, as in section 3.

    points: with tau over the serial run of some size, w = m_original / m. serial: T(1, m) by size. A group is then a
    size with an original, and tau is T(1, m_original) / (S T(N, m)) of it: tau over another original changes by the
    serial time per work of that original. Points of a size without serial time keep their own original only.
    """
    known = np.array(sorted(serial))
    per_work = np.array([serial[m] / m for m in known.tolist()])
    own = points.w * points.size
    parts = []
    for m in np.unique(points.size):
        rows = points.select(points.size == m)
        base = np.isclose(known, own[points.size == m][0])
        if not base.any():
            parts.append(rows)
            continue
        for original, rate in zip(known[known <= m], per_work[known <= m], strict=True):
            tau = rows.tau * rate / float(per_work[base][0])
            parts.append(replace(rows, w=np.full(rows.ranks.size, original / m), tau=tau))
    numbered = [
        replace(part, group=np.full(part.ranks.size, number, dtype=np.intp)) for number, part in enumerate(parts)
    ]
    return reduce(Points.joined, numbered)


def contexts(points: Points, c_h: float | Floats) -> dict[int, Rows]:
    """The candidates for C1 .. C4 per group: 1 < N <= c_h and a known tau. c_h: one number, or one per point."""
    small = (points.ranks > 1) & (points.ranks <= c_h) & ~np.isnan(points.tau)
    return {int(g): np.flatnonzero(small & (points.group == g)) for g in np.unique(points.group[small])}


def vectors(points: Points, targets: Rows, pools: dict[int, Rows], levels: int, rng: np.random.Generator) -> Floats:
    """A vector per target, with four runs drawn from the pool of its group: (targets, 16) or (targets, 26).

    The four are distinct if the pool has four; smaller pools repeat runs. Each target's group must have a pool.
    """
    drawn = [rng.choice(pools[g], CONTEXT, replace=pools[g].size < CONTEXT) for g in points.group[targets]]
    chosen = np.concatenate([np.array(drawn, dtype=np.intp).reshape(-1, CONTEXT), targets[:, None]], axis=1)
    columns = [points.ranks, points.size, points.tau]
    if levels == 2:
        columns = [points.ranks, points.nodes, points.ranks / points.nodes, points.size, points.tau]
    body = np.stack([column[chosen] for column in columns], axis=2).reshape(targets.size, -1)
    w = points.w[targets]
    head = np.stack([w * points.size[targets], w], axis=1)
    return np.concatenate([head, body[:, :-1]], axis=1)
