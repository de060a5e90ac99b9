"""The grey-box paper's tables 1 to 6 and figures 2 and 3: speedups beyond the cutoffs, model by model.

Strong scaling: w = 1, speedups over the serial run of the same size. Hybrid: speedups over the serial run of the
smallest size, scored where w <= 0.5. Weak: of those, the runs with as much work per process as some run of the
smallest size. Runs with more than c_f processes are scored; c_f is a quantile of the scales that each size was run
at, the median in the paper, since sizes need not be run at the same scales. Models are trained on sizes up to w_f, but
the four runs at small scale in a vector are of the size that is predicted, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.fraction import TooFewRuns, aggregate, optimal, ratios, references, serial_time
from barograph_modeler.scaling.greybox import METHODS, GreyBox, Method
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.oliveira import Oliveira
from barograph_modeler.scaling.samples import Points
from barograph_modeler.scaling.speedup import overhead, speedup
from barograph_modeler.scaling.study import Grid, median, root_mean_square

Scaling = Literal["strong", "hybrid", "weak"]

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

LINE_TOLERANCE: Final = 0.01
"""Relative difference of work per process on one line of weak scaling."""


@dataclass(frozen=True)
class Split:
    """One application's runs with their cutoffs. c_f: per run. original: m_original, None for strong scaling."""

    runs: Runs
    c_f: Floats
    w_f: float
    original: float | None
    serial: dict[float, float]
    scored: npt.NDArray[np.bool_]

    @property
    def within(self) -> npt.NDArray[np.bool_]:
        """Runs up to c_f."""
        return self.runs.ranks <= self.c_f

    @property
    def trained(self) -> npt.NDArray[np.bool_]:
        """Runs up to both cutoffs."""
        return self.within & (self.runs.size <= self.w_f)

    @property
    def measured(self) -> Floats:
        """Speedup per run."""
        return references(self.runs, self.serial, self.original) / self.runs.seconds

    @property
    def w(self) -> Floats:
        """Original over scaled work per run."""
        return ratios(self.runs, self.original)


def split(runs: Runs, scaling: Scaling, c_f: float = 0.5, w_f: float = 0.5) -> Split:
    """Cut the runs at quantiles of their scales and sizes. Raises TooFewRuns where nothing is left to use."""
    sizes = np.unique(runs.size)
    largest = float(np.quantile(sizes, w_f))
    if scaling != "strong":
        if sizes.size < 2:
            raise TooFewRuns(f"{sizes.size} problem size, expected at least 2 for {scaling} scaling")
        largest = max(largest, float(sizes[1]))
    cutoff = np.empty(len(runs))
    for size in sizes:
        rows = runs.size == size
        cutoff[rows] = np.quantile(np.unique(runs.ranks[rows]), c_f)
    within = runs.take(runs.ranks <= cutoff)
    original = None if scaling == "strong" else float(sizes[0])
    serial = {}
    for size in sizes if original is None else sizes[:1]:
        serial[float(size)] = serial_time(within.take(within.size == size))
    scored = runs.ranks > cutoff
    if original is not None:
        scored &= runs.size >= 2 * original
    if scaling == "weak":
        scored &= _on_lines(runs, sizes[0])
    if not scored.any():
        raise TooFewRuns(f"no run beyond the cutoff of {c_f:g} of the scales, expected some to score")
    return Split(runs, cutoff, largest, original, serial, scored)


def predict(part: Split, seed: int) -> tuple[dict[str, Floats], dict[str, str]]:
    """Speedups of the scored runs by each model of LABELS, NaN where it has none; and why a model has none at all."""
    share = aggregate(part.runs, part.serial, part.original, part.c_f, part.w_f)
    w, scored = part.w, part.scored
    amdahl = np.asarray(speedup(part.runs.ranks, w, share))
    models: dict[str, Callable[[], Floats]] = {
        method.label: _greybox(method, part, share, amdahl, seed) for method in METHODS
    }
    models["Oliveira"] = lambda: _oliveira(part, seed)
    models["Amdahl Aggregate p"] = lambda: amdahl[scored]
    models["Amdahl Optimal p"] = lambda: _per_size(part, optimal(part.runs, part.serial, part.original, part.c_f))
    models["Amdahl Optimal p FD"] = lambda: _per_size(part, optimal(part.runs, part.serial, part.original, np.inf))
    predicted, reasons = {}, {}
    for label in LABELS:
        try:
            predicted[label] = models[label]()
        except TooFewRuns as error:
            predicted[label] = np.full(int(scored.sum()), np.nan)
            reasons[label] = str(error)
    return predicted, reasons


def _greybox(method: Method, part: Split, share: float, amdahl: Floats, seed: int) -> Callable[[], Floats]:
    def predicted() -> Floats:
        runs, w = part.runs, part.w
        serial = references(runs, part.serial, part.original)
        tau = np.asarray(overhead(runs.seconds, serial, runs.ranks, w, share))
        _, group = np.unique(runs.size, return_inverse=True)
        points = Points.of(runs, group.astype(np.intp), w, tau)
        model = GreyBox(method, points.take(part.trained), part.c_f[part.trained], seed)
        factor = model.predict(points, np.flatnonzero(part.scored), part.c_f / 2)
        return np.asarray(amdahl[part.scored] * factor)

    return predicted


def _oliveira(part: Split, seed: int) -> Floats:
    if part.original is not None:
        raise TooFewRuns("Oliveira's model knows strong scaling only")
    runs, trained, scored = part.runs, part.trained, part.scored
    model = Oliveira.fit(runs.ranks[trained], runs.size[trained], part.measured[trained], seed=seed)
    return model.speedup(runs.ranks[scored], runs.size[scored])


def _per_size(part: Split, shares: Mapping[float, float]) -> Floats:
    runs = part.runs.take(part.scored)
    answer = np.full(len(runs), np.nan)
    for size, share in shares.items():
        rows = runs.size == size
        answer[rows] = speedup(runs.ranks[rows], part.w[part.scored][rows], share)
    return answer


def _on_lines(runs: Runs, smallest: float) -> npt.NDArray[np.bool_]:
    """Whether each run has the work per process of some run of the smallest size."""
    lines = np.unique(smallest / runs.ranks[runs.size == smallest])
    per_process = runs.size / runs.ranks
    return np.asarray(np.any(np.abs(per_process[:, None] / lines - 1) <= LINE_TOLERANCE, axis=1))


@dataclass(frozen=True)
class Scored:
    """How one model did on one application. rmse_speedup: of S' - S; rmse_relative: of S' / S - 1, NaN left out.

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
    """Every model on one application. Raises TooFewRuns where the runs cannot be cut."""
    part = split(runs, scaling, c_f, w_f)
    predicted, reasons = predict(part, seed)
    measured = part.measured[part.scored]
    rows = []
    for model, speedups in predicted.items():
        errors = speedups - measured
        known = ~np.isnan(errors)
        # Seconds are a serial time over the speedup, so an error of time is S / S' - 1.
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
    """The paper's tables and the quartiles of its figures: models by the first part of applications' names.

    A cell is the median over the applications of its column.
    """
    columns = list(dict.fromkeys(row.application[0] for row in rows))
    found = []
    for scaling in dict.fromkeys(row.scaling for row in rows):
        for title, value in STATISTICS.items():
            cells = [
                [
                    median(
                        [getattr(row, value) for row in rows if _is(row, scaling, model) and row.application[0] == name]
                    )
                    for name in columns
                ]
                for model in LABELS
            ]
            found.append(Grid(f"{title}, {scaling} scaling", list(LABELS), columns, cells))
        spread = [_quantiles([row.errors for row in rows if _is(row, scaling, model)]) for model in LABELS]
        names = [f"{quantile:g} %" for quantile in PERCENTILES]
        found.append(
            Grid(f"Root squared error of speedup, percentiles, {scaling} scaling", list(LABELS), names, spread)
        )
    return found


def _is(row: Scored, scaling: str, model: str) -> bool:
    return row.scaling == scaling and row.model == model


def _quantiles(errors: list[Floats]) -> list[float | None]:
    every = np.concatenate(errors)
    known = every[~np.isnan(every)]
    return [float(np.percentile(known, q)) for q in PERCENTILES] if known.size else [None] * len(PERCENTILES)
