"""The grey-box paper's tables 1 to 6 and figures 2 and 3: speedups beyond the cutoffs, model by model.

`split.py` defines the learned and the scored runs. As in the paper, the four runs at small scale in a vector are of the
predicted size, even if that is beyond w_f, and training vectors pair runs with the serial run of any size up to theirs
(m_original of section 3). Predictions are over the original that is scored: w = 1 for strong scaling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from barograph_lab.studies.greybox.fraction import TooFewRuns, aggregate, optimal, references
from barograph_lab.studies.greybox.greybox import METHODS, GreyBox, OverheadMethod
from barograph_lab.studies.greybox.oliveira import Oliveira
from barograph_lab.studies.greybox.samples import Points, with_originals
from barograph_lab.studies.greybox.speedup import overhead, speedup
from barograph_lab.studies.greybox.split import CutoffSplit, Scaling, split
from barograph_lab.studies.runs import root_mean_square
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


class Predicted(NamedTuple):
    """Speedups of the scored runs by each model of LABELS, NaN if unknown, and what they are based on.

    reasons: why a model has none at all. targets: distinct configurations whose overhead was learned. beyond: as
    `GreyBox.beyond`.
    """

    speedups: dict[str, Floats]
    reasons: dict[str, str]
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
        """Of the scored runs. Raises TooFewRuns if there is no vector."""
        model = GreyBox(method, self._trained, self._c_f, self._seed)
        c_h = self._part.c_f / 2
        self.targets = model.targets
        self.beyond = model.beyond(self._points, self._scored, c_h)
        return np.asarray(self._amdahl[self._part.scored] * model.predict(self._points, self._scored, c_h))


def predict(part: CutoffSplit, seed: int, labels: Sequence[str] = LABELS) -> Predicted:
    """The scored runs by each of some models. seed: of draws, networks and swarms."""
    share = aggregate(part.runs, part.serial, part.original, part.c_f, part.w_f)
    scored = part.scored
    amdahl = speedup(part.runs.ranks, part.w, share)
    overheads = _Overheads(part, share, amdahl, seed)
    models: tuple[Callable[[], Floats], ...] = (
        *(partial(overheads.speedups, method) for method in METHODS),
        lambda: _oliveira(part, seed),
        lambda: amdahl[scored],
        lambda: _per_size(part, optimal(part.runs, part.serial, part.original, part.c_f)),
        lambda: _per_size(part, optimal(part.runs, part.serial, part.original, np.inf)),
    )
    predicted, reasons = {}, {}
    for label, model in zip(LABELS, models, strict=True):
        if label not in labels:
            continue
        try:
            predicted[label] = model()
        except TooFewRuns as error:
            predicted[label] = np.full(int(scored.sum()), np.nan)
            reasons[label] = str(error)
    return Predicted(predicted, reasons, overheads.targets, overheads.beyond)


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
    targets, beyond: of the overhead models, as in `Predicted`. ranks, sizes, measured, predicted: processes, work and
    speedups of the scored runs.
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
    targets: int
    beyond: dict[str, float]
    ranks: Floats
    sizes: Floats
    measured: Floats
    predicted: Floats


def evaluate(
    application: tuple[str, ...],
    runs: Runs,
    scaling: Scaling,
    c_f: float,
    w_f: float,
    seed: int,
    labels: Sequence[str] = LABELS,
) -> list[Scored]:
    """Score some models on one application. Raises TooFewRuns if the runs cannot be split."""
    part = split(runs, scaling, c_f, w_f)
    found = predict(part, seed, labels)
    measured, scored = part.measured[part.scored], part.runs.select(part.scored)
    rows = []
    for model, speedups in found.speedups.items():
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
                found.reasons.get(model, ""),
                found.targets,
                found.beyond,
                scored.ranks,
                scored.size,
                measured,
                speedups,
            )
        )
    return rows
