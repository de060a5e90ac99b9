"""Models of scaling over several sets of runs: each used everywhere, and none chosen afterwards.

The best rival of a set, chosen among many when its errors are known, is ahead by chance where a set has few curves. Two
comparisons are without that choice: of each model alone over all sets, and with the rival that is best on the other
sets. A rival that refuses a workload of a set is not compared there, and is not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from barograph_lab.studies.series import BadTable

OURS: Final = "barograph"
ERRORS: Final = ("median_ape", "mean_ape")
EXACT: Final = 1e-4
"""Errors that are as good as none, as shares."""
DRAWS: Final = 2000
CENTRAL: Final = (2.5, 97.5)


@dataclass(frozen=True)
class ScoredSet:
    """What `barograph backtest scaling` printed of one file: rows of models, and of workloads by model."""

    name: str
    summary: Sequence[Mapping[str, Any]]
    workloads: Sequence[Mapping[str, Any]]

    def errors(self, kind: str) -> dict[str, float]:
        """By model that answers all workloads, its error. kind: of ERRORS."""
        return {row["model"]: max(row[kind], EXACT) for row in self.summary if not row["refused"]}

    def coverage(self, together: Sequence[str], seed: int) -> tuple[float, float, float]:
        """The share of runs inside our limits, and the CENTRAL percentiles of it when workloads are drawn again.

        together: columns; workloads with the same cells there are drawn together. Without them each is drawn alone.
        """
        rows = [row for row in self.workloads if row["model"] == OURS and row["coverage_95"] is not None]
        runs = np.array([row["scored"] - row["unanswered"] for row in rows])
        inside = runs * np.array([row["coverage_95"] for row in rows])
        keys = [tuple(row["by"].get(name) for name in together) if together else at for at, row in enumerate(rows)]
        _, groups = np.unique([repr(key) for key in keys], return_inverse=True)
        totals = np.stack([np.bincount(groups, weights=one) for one in (inside, runs)])
        drawn = np.random.default_rng(seed).integers(totals.shape[1], size=(DRAWS, totals.shape[1]))
        shares = totals[0][drawn].sum(axis=1) / totals[1][drawn].sum(axis=1)
        lower, upper = np.percentile(shares, CENTRAL)
        return float(inside.sum() / runs.sum()), float(lower), float(upper)


@dataclass(frozen=True)
class ModelOverSets:
    """One model over all sets: how many it answers, and by kind of error the geometric mean and the largest of its
    ratios to the best model of each of them."""

    model: str
    sets: int
    mean_ratio: dict[str, float]
    worst_ratio: dict[str, float]


@dataclass(frozen=True)
class SetComparison:
    """One set. By kind of error: ours, its ratio to the best rival of this set, and the rival that is best on the other
    sets with our ratio to it. coverage, lower, upper: of our limits."""

    name: str
    workloads: int
    ours: dict[str, float]
    to_best: dict[str, float]
    chosen: dict[str, str]
    to_chosen: dict[str, float]
    coverage: float
    lower: float
    upper: float


def over_sets(sets: Sequence[ScoredSet]) -> list[ModelOverSets]:
    """Each model over all sets, those that answer the most sets first, and of these the least mean ratio."""
    found = []
    errors = {kind: [one.errors(kind) for one in sets] for kind in ERRORS}
    for model in dict.fromkeys(name for one in errors[ERRORS[0]] for name in one):
        logs = {
            kind: np.log([one[model] / min(one.values()) for one in every if model in one])
            for kind, every in errors.items()
        }
        means = {kind: float(np.exp(one.mean())) for kind, one in logs.items()}
        worst = {kind: float(np.exp(one.max())) for kind, one in logs.items()}
        found.append(ModelOverSets(model, logs[ERRORS[0]].size, means, worst))
    return sorted(found, key=lambda one: (-one.sets, sum(one.mean_ratio.values())))


def compare(sets: Sequence[ScoredSet], together: Sequence[str] = (), seed: int = 0) -> list[SetComparison]:
    """Each set. together, seed: of the draws of `ScoredSet.coverage`.

    Raises BadTable for one set, and unless ours and a rival answer all.
    """
    if len(sets) < 2:
        raise BadTable("one file, expected two or more: a rival is chosen on the others")
    found = []
    errors = {kind: [one.errors(kind) for one in sets] for kind in ERRORS}
    everywhere = [name for name in errors[ERRORS[0]][0] if all(name in one for one in errors[ERRORS[0]])]
    rivals = [name for name in everywhere if name != OURS]
    if len(rivals) == len(everywhere) or not rivals:
        answering = ", ".join(everywhere) or "no model"
        raise BadTable(f"all workloads are answered by {answering}, expected {OURS} and a rival")
    for at, one in enumerate(sets):
        chosen = {kind: min(rivals, key=lambda rival: _others(every, at, rival)) for kind, every in errors.items()}
        ours = {kind: every[at][OURS] for kind, every in errors.items()}
        best = {kind: min(error for name, error in errors[kind][at].items() if name != OURS) for kind in ERRORS}
        found.append(
            SetComparison(
                one.name,
                sum(row["model"] == OURS for row in one.workloads),
                ours,
                {kind: ours[kind] / best[kind] for kind in ERRORS},
                chosen,
                {kind: ours[kind] / errors[kind][at][chosen[kind]] for kind in ERRORS},
                *one.coverage(together, seed),
            )
        )
    return found


def _others(every: Sequence[Mapping[str, float]], at: int, rival: str) -> float:
    return float(np.sum([np.log(one[rival]) for other, one in enumerate(every) if other != at]))
