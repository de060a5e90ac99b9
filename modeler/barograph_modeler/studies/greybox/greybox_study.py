"""The grey-box paper's tables 1 to 6 and figures 2 and 3: speedups beyond the cutoffs, model by model.

`split.py` defines the learned and the scored runs. As in the paper, the four runs at small scale in a vector are of the
predicted size, even if that is beyond w_f.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.greybox.fraction import TooFewRuns, aggregate, optimal, references
from barograph_modeler.studies.greybox.greybox import METHODS, GreyBox, OverheadMethod
from barograph_modeler.studies.greybox.oliveira import Oliveira
from barograph_modeler.studies.greybox.samples import Points
from barograph_modeler.studies.greybox.speedup import overhead, speedup
from barograph_modeler.studies.greybox.split import CutoffSplit, Scaling, split
from barograph_modeler.studies.runs import Grid, over_known, root_mean_square

LABELS: Final = (
    *(method.label for method in METHODS),
    "Oliveira",
    "Amdahl Aggregate p",
    "Amdahl Optimal p",
    "Amdahl Optimal p FD",
)
"""The rows of the paper's tables."""

STATISTICS: Final = {
    "RMSE of speedup": "rmse_speedup",
    "RMSE of relative speedup error": "rmse_relative",
    "Median relative error of time": "median_ape",
}

PERCENTILES: Final = (25.0, 50.0, 75.0, 95.0)


def predict(part: CutoffSplit, seed: int) -> tuple[dict[str, Floats], dict[str, str]]:
    """Speedups of the scored runs by each model of LABELS, NaN if unknown; and why a model has none at all."""
    share = aggregate(part.runs, part.serial, part.original, part.c_f, part.w_f)
    scored = part.scored
    amdahl = speedup(part.runs.ranks, part.w, share)
    models: tuple[Callable[[], Floats], ...] = (
        *(partial(_greybox, method, part, share, amdahl, seed) for method in METHODS),
        lambda: _oliveira(part, seed),
        lambda: amdahl[scored],
        lambda: _per_size(part, optimal(part.runs, part.serial, part.original, part.c_f)),
        lambda: _per_size(part, optimal(part.runs, part.serial, part.original, np.inf)),
    )
    predicted, reasons = {}, {}
    for label, model in zip(LABELS, models, strict=True):
        try:
            predicted[label] = model()
        except TooFewRuns as error:
            predicted[label] = np.full(int(scored.sum()), np.nan)
            reasons[label] = str(error)
    return predicted, reasons


def _greybox(method: OverheadMethod, part: CutoffSplit, share: float, amdahl: Floats, seed: int) -> Floats:
    runs = part.runs
    tau = overhead(runs.seconds, references(runs, part.serial, part.original), runs.ranks, part.w, share)
    _, group = np.unique(runs.size, return_inverse=True)
    points = Points.of(runs, group.astype(np.intp), part.w, tau)
    model = GreyBox(method, points.select(part.trained), part.c_f[part.trained], seed)
    return np.asarray(amdahl[part.scored] * model.predict(points, np.flatnonzero(part.scored), part.c_f / 2))


def _oliveira(part: CutoffSplit, seed: int) -> Floats:
    if part.original is not None:
        raise TooFewRuns("Oliveira's model covers strong scaling only")
    runs, trained, scored = part.runs, part.trained, part.scored
    model = Oliveira.fit(runs.ranks[trained], runs.size[trained], part.measured[trained], seed=seed)
    return model.speedup(runs.ranks[scored], runs.size[scored])


def _per_size(part: CutoffSplit, shares: Mapping[float, float]) -> Floats:
    runs = part.runs.select(part.scored)
    answer = np.full(len(runs), np.nan)
    for size, share in shares.items():
        rows = runs.size == size
        answer[rows] = speedup(runs.ranks[rows], part.w[part.scored][rows], share)
    return answer


@dataclass(frozen=True)
class Scored:
    """The errors of one model on one application, without NaN. rmse_speedup: of S' - S. rmse_relative: of S' / S - 1.

    errors: |S' - S| per scored run, the paper's root squared error. unknown: scored runs without a prediction.
    """

    application: tuple[str, ...]
    scaling: str
    model: str
    scored: int
    unknown: int
    rmse_speedup: float
    rmse_relative: float
    median_ape: float
    errors: Floats
    reason: str


def evaluate(
    application: tuple[str, ...], runs: Runs, scaling: Scaling, c_f: float, w_f: float, seed: int
) -> list[Scored]:
    """Score every model on one application. Raises TooFewRuns if the runs cannot be split."""
    part = split(runs, scaling, c_f, w_f)
    predicted, reasons = predict(part, seed)
    measured = part.measured[part.scored]
    rows = []
    for model, speedups in predicted.items():
        errors = speedups - measured
        known = ~np.isnan(errors)
        # A time is a serial time over the speedup, so its relative error is S / S' - 1.
        ape = np.abs(measured[known] / speedups[known] - 1)
        rows.append(
            Scored(
                application,
                scaling,
                model,
                measured.size,
                int((~known).sum()),
                root_mean_square(errors),
                root_mean_square(errors / measured),
                float(np.median(ape)) if ape.size else float("nan"),
                np.abs(errors),
                reasons.get(model, ""),
            )
        )
    return rows


def tables(rows: Sequence[Scored]) -> list[Grid]:
    """The paper's tables and the percentiles of its figures: a row per model, a column per first part of the name.

    A cell is the median over the applications of its column.
    """
    columns = list(dict.fromkeys(row.application[0] for row in rows))
    found = []
    for scaling in dict.fromkeys(row.scaling for row in rows):
        scored = [[row for row in rows if (row.scaling, row.model) == (scaling, model)] for model in LABELS]
        for title, value in STATISTICS.items():
            cells = [
                [
                    over_known(np.median, (getattr(row, value) for row in mine if row.application[0] == name))
                    for name in columns
                ]
                for mine in scored
            ]
            found.append(Grid(f"{title}, {scaling} scaling", list(LABELS), columns, cells))
        spread = [_percentiles(np.concatenate([row.errors for row in mine])) for mine in scored]
        shares = [f"{share:g} %" for share in PERCENTILES]
        title = f"Root squared error of speedup, percentiles, {scaling} scaling"
        found.append(Grid(title, list(LABELS), shares, spread))
    return found


def _percentiles(errors: Floats) -> list[float | None]:
    known = errors[~np.isnan(errors)]
    return [float(np.percentile(known, q)) for q in PERCENTILES] if known.size else [None] * len(PERCENTILES)
