"""The grey-box paper's tables 1 to 6 and its figures' percentiles: speedups beyond the cutoffs, model by model.

`split.py` defines the learned and the scored runs. As in the paper, the four runs at small scale in a vector are of the
predicted size, even if that is beyond w_f, and training vectors pair runs with the serial run of any size up to theirs
(m_original of section 3). Predictions are over the original that is scored: w = 1 for strong scaling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from barograph_lab.studies.greybox.fraction import TooFewRuns, aggregate, optimal, references
from barograph_lab.studies.greybox.greybox import METHODS, GreyBox, OverheadMethod
from barograph_lab.studies.greybox.oliveira import Oliveira
from barograph_lab.studies.greybox.samples import Points, with_originals
from barograph_lab.studies.greybox.speedup import overhead, speedup
from barograph_lab.studies.greybox.split import CutoffSplit, Scaling, split
from barograph_lab.studies.runs import Grid, over_known, root_mean_square
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

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
MIN_TARGETS: Final = 5
"""Distinct training targets from which errors of overhead models are evidence for or against them."""


@dataclass(frozen=True)
class Scored:
    """The errors of one model on one application, without NaN. rmse_speedup: of S' - S. rmse_relative: of S' / S - 1.

    errors: |S' - S| per scored run, the paper's root squared error. unknown: scored runs without a prediction.
    targets: distinct configurations whose overhead was learned. beyond: as `GreyBox.beyond`.
    """

    application: tuple[str, ...]
    scaling: str
    model: str
    unknown: int
    rmse_speedup: float
    rmse_relative: float
    median_ape: float
    errors: Floats
    reason: str
    targets: int
    beyond: dict[str, float]


class _Overheads:
    """Overhead models of one application's split, which share training runs and seed."""

    def __init__(self, part: CutoffSplit, share: float, amdahl: Floats, seed: int) -> None:
        runs = part.runs
        tau = overhead(runs.seconds, references(runs, part.serial, part.original), runs.ranks, part.w, share)
        _, group = np.unique(runs.size, return_inverse=True)
        self._part, self._amdahl, self._seed = part, amdahl, seed
        self._points = Points.of(runs, group.astype(np.intp), part.w, tau)
        trained = self._points.select(part.trained)
        sizes = np.unique(trained.size)
        cutoffs = {float(m): float(part.c_f[runs.size == m][0]) for m in sizes}
        self._trained = with_originals(trained, part.known_serial(sizes))
        self._c_f = np.array([cutoffs[float(m)] for m in self._trained.size])
        self._scored = np.flatnonzero(part.scored)
        self.targets = 0
        self.beyond: dict[str, float] = {}

    def speedups(self, method: OverheadMethod) -> Floats:
        """Speedups of the scored runs. Raises TooFewRuns if there is no vector."""
        model = GreyBox(method, self._trained, self._c_f, self._seed)
        c_h = self._part.c_f / 2
        self.targets = model.targets
        self.beyond = model.beyond(self._points, self._scored, c_h)
        return np.asarray(self._amdahl[self._part.scored] * model.predict(self._points, self._scored, c_h))


def evaluate(
    application: tuple[str, ...], runs: Runs, scaling: Scaling, c_f: float, w_f: float, seed: int
) -> Iterator[Scored]:
    """Score the models on one application. seed: of draws, networks and swarms. Raises TooFewRuns for a bad split."""
    part = split(runs, scaling, c_f, w_f)
    share = aggregate(part.runs, part.serial, part.original, part.c_f, part.w_f)
    measured, amdahl = part.measured[part.scored], speedup(part.runs.ranks, part.w, share)
    overheads = _Overheads(part, share, amdahl, seed)
    models: tuple[Callable[[], Floats], ...] = (
        *(partial(overheads.speedups, method) for method in METHODS),
        lambda: _oliveira(part, seed),
        lambda: amdahl[part.scored],
        lambda: _per_size(part, optimal(part.runs, part.serial, part.original, part.c_f)),
        lambda: _per_size(part, optimal(part.runs, part.serial, part.original, np.inf)),
    )
    for label, model in zip(LABELS, models, strict=True):
        speedups, reason = np.full(measured.size, np.nan), ""
        try:
            speedups = model()
        except TooFewRuns as error:
            reason = str(error)
        errors = speedups - measured
        known = ~np.isnan(errors)
        # A time is a serial time over the speedup, so its relative error is S / S' - 1.
        ape = float(np.median(np.abs(measured[known] / speedups[known] - 1))) if known.any() else float("nan")
        rmse = root_mean_square(errors), root_mean_square(errors / measured)
        based_on = overheads.targets, overheads.beyond
        yield Scored(application, scaling, label, int((~known).sum()), *rmse, ape, np.abs(errors), reason, *based_on)


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


def tables(rows: Sequence[Scored]) -> list[Grid]:
    """The paper's tables and the percentiles of its figures: a row per model, a column per first part of the name.

    A cell is the median over the applications of its column.
    """
    columns = list(dict.fromkeys(row.application[0] for row in rows))
    found = []
    for scaling in dict.fromkeys(row.scaling for row in rows):
        of_model = [[row for row in rows if (row.scaling, row.model) == (scaling, model)] for model in LABELS]
        for title, value in STATISTICS.items():
            cells = [[_median(mine, name, value) for name in columns] for mine in of_model]
            found.append(Grid(f"{title}, {scaling} scaling", list(LABELS), columns, cells))
        spread = [_percentiles(np.concatenate([row.errors for row in mine])) for mine in of_model]
        title = f"Root squared error of speedup, percentiles, {scaling} scaling"
        found.append(Grid(title, list(LABELS), [f"{share:g} %" for share in PERCENTILES], spread))
        found.append(_targets(of_model[0], columns))
    return found


def _median(rows: Sequence[Scored], column: str, value: str) -> float | None:
    return over_known(np.median, (getattr(row, value) for row in rows if row.application[0] == column))


def _targets(rows: Sequence[Scored], columns: list[str]) -> Grid:
    """Distinct training targets over the applications of each column: few of them cannot decide between models."""
    by_column = [[row.targets for row in rows if row.application[0] == name] for name in columns]
    averages = [[over_known(average, counts) for counts in by_column] for average in (min, np.median, max)]
    cells = [[int(one) if one is not None and one.is_integer() else one for one in row] for row in averages]
    return Grid(f"Distinct training targets, {rows[0].scaling} scaling", ["fewest", "median", "most"], columns, cells)


def cautions(rows: Sequence[Scored]) -> list[str]:
    """What limits the tables: columns with fewer than MIN_TARGETS training targets, and extrapolated features."""
    found = []
    for scaling in dict.fromkeys(row.scaling for row in rows):
        mine = [row for row in rows if (row.scaling, row.model) == (scaling, LABELS[0])]
        columns = list(dict.fromkeys(row.application[0] for row in mine))
        medians = zip(columns, _targets(mine, columns).cells[1], strict=True)
        if few := [f"{name} {median:g}" for name, median in medians if median is not None and median < MIN_TARGETS]:
            found.append(
                f"{scaling}: fewer than {MIN_TARGETS} distinct training targets (median over applications), the data"
                f" cannot decide between overhead models: {', '.join(few)}"
            )
        for feature in dict.fromkeys(feature for row in mine for feature in row.beyond):
            far = [row.beyond[feature] for row in mine if feature in row.beyond]
            extent = f"by up to {max(far):.2g} of its range" if max(far) < np.inf else "it never varied in training"
            applications = f"in {len(far)} of {len(mine)} applications"
            found.append(f"{scaling}: overhead models extrapolate in {feature}, {applications}: {extent}")
    return found


def _percentiles(errors: Floats) -> list[float | None]:
    known = errors[~np.isnan(errors)]
    return [float(np.percentile(known, q)) for q in PERCENTILES] if known.size else [None] * len(PERCENTILES)
