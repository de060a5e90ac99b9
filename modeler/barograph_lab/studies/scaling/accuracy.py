"""Errors of predicted runtimes, per workload and per model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from barograph_lab.studies.rivals.laws import Model, RuntimeCurve
from barograph_lab.studies.runs import over_known, root_mean_square
from barograph_lab.studies.scaling.models import PredictorCurve
from barograph_lab.studies.scaling.workloads import WorkloadSplit
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs


@dataclass(frozen=True)
class ModelAccuracy:
    """The errors of one model on one workload. Errors and coverage are shares (0.12 is 12 %); None without an answer.

    scales: number of learned and scored scales. learned, scored: number of runs. unanswered: scored runs without an
    answer. median_ape, mean_ape: of |predicted - observed| / observed over the scored runs. rmse_speedup: of speedups
    over the smallest learned scale of the same size. coverage_95: share of scored runs inside the 95 % interval, None
    for models without. reason: why there is no answer.
    """

    by: dict[str, str]
    model: str
    scales: int
    learned: int
    scored: int
    unanswered: int
    median_ape: float | None = None
    mean_ape: float | None = None
    rmse_speedup: float | None = None
    coverage_95: float | None = None
    reason: str = ""


def fit_all(
    models: Iterable[Model], splits: Sequence[WorkloadSplit], seed: int
) -> dict[str, dict[str, RuntimeCurve | str]]:
    """The curves of every model, by model and workload. Workloads that are not scored are learned too."""
    problems = {one.name: one.learned for one in splits}
    return {model.name: model.fit(problems, seed) for model in models}


def score(
    curves: Mapping[str, Mapping[str, RuntimeCurve | str]], splits: Sequence[WorkloadSplit]
) -> Iterator[ModelAccuracy]:
    """Score every model on every workload that has runs to score."""
    for one in splits:
        if one.scored is not None:
            for model, fitted in curves.items():
                yield _score(model, fitted[one.name], one, one.scored)


def _score(model: str, curve: RuntimeCurve | str, one: WorkloadSplit, scored: Runs) -> ModelAccuracy:
    runs = len(scored)
    nothing = ModelAccuracy(one.key, model, one.scales, len(one.learned), runs, runs)
    if isinstance(curve, str):
        return replace(nothing, reason=curve)
    rows = (scored.ranks, scored.nodes, scored.size)
    with np.errstate(all="ignore"):  # a result that is no number counts as unanswered
        predicted = curve(*rows)
        good = np.isfinite(predicted) & (predicted > 0)
    if not good.any():
        return replace(nothing, reason="no answer for these runs")
    error = np.abs(predicted - scored.seconds)[good] / scored.seconds[good]
    coverage = None
    if isinstance(curve, PredictorCurve):
        limits = curve.limits(*rows)
        coverage = float(((limits.lower <= scored.seconds) & (scored.seconds <= limits.upper))[good].mean())
    return replace(
        nothing,
        unanswered=int((~good).sum()),
        median_ape=float(np.median(error)),
        mean_ape=float(error.mean()),
        rmse_speedup=_rmse_speedup(one.learned, scored, predicted, good),
        coverage_95=coverage,
    )


def _rmse_speedup(learned: Runs, scored: Runs, predicted: Floats, good: np.ndarray) -> float | None:
    base = np.full(len(scored), np.nan)
    for size in np.unique(learned.size):
        part = learned.select(learned.size == size)
        base[scored.size == size] = np.median(part.seconds[part.ranks == part.ranks.min()])
    error = root_mean_square((base / predicted - base / scored.seconds)[good])
    return error if np.isfinite(error) else None


def summarize(rows: Sequence[ModelAccuracy]) -> list[dict[str, Any]]:
    """One row per model, over the workloads that it answers.

    median_ape, rmse_speedup: medians over workloads. mean_ape: mean over workloads. coverage_95: share of all answered
    runs.
    """
    summary = []
    for model in dict.fromkeys(row.model for row in rows):
        mine = [row for row in rows if row.model == model]
        limited = [row for row in mine if row.coverage_95 is not None]
        answered = sum(row.scored - row.unanswered for row in limited)
        inside = sum((row.coverage_95 or 0) * (row.scored - row.unanswered) for row in limited)
        summary.append(
            {
                "model": model,
                "workloads": sum(row.median_ape is not None for row in mine),
                "refused": sum(row.median_ape is None for row in mine),
                "median_ape": over_known(np.median, (row.median_ape for row in mine)),
                "mean_ape": over_known(np.mean, (row.mean_ape for row in mine)),
                "rmse_speedup": over_known(np.median, (row.rmse_speedup for row in mine)),
                "coverage_95": inside / answered if limited else None,
            }
        )
    return summary
