"""The weak-scaling paper's tables: relative errors of the log-bilinear law at scales beyond those it learned.

Each series is one application with one amount of work per process. If the file has no sizes, the size is the ranks
times WORK_PER_RANK: any unit but 1 gives the same predictions (see `weak.py`). Rivals: those that the paper names for
runs whose size grows with the ranks, Barnes' in ranks and size (`barnes.py`), the normal form in ranks where Extra-P is
installed, and perfect weak scaling from the largest learned scale. a p + b/p + c/sqrt(p) and b (1 + a)**s + c are not
among them: one is introduced for strong scaling, the other for wide scaling (section 3.5; its "weak" is a misprint).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from barograph_lab.studies.rivals import extrap, laws
from barograph_lab.studies.rivals.laws import Model, RuntimeCurve
from barograph_lab.studies.rivals.papers import log_bilinear
from barograph_lab.studies.runs import Grid, over_known
from barograph_lab.studies.scaling.workloads import lower_half
from barograph_lab.studies.series import positions
from barograph_lab.studies.weak.weak import BEST, Kind, relative_error
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

WORK_PER_RANK: Final = 1e6
"""Size per rank if sizes are not known."""
BILINEAR: Final = "log-bilinear"

AVERAGES: Final[dict[str, Callable[[Any], Any]]] = {"mean": np.mean, "median": np.median, "largest": max}

SIZED_RIVALS: Final = ("log-linear", "barnes-quadratic")


@dataclass(frozen=True)
class Target:
    """A predicted scale. errors: relative error per law, NaN without a prediction. reasons: per law without one."""

    series: tuple[str, ...]
    kind: Kind
    ranks: float
    size: float
    errors: dict[str, float]
    reasons: dict[str, str]


def best_of_repeats(runs: Runs, kind: Kind) -> Runs:
    """One run per configuration: the least time, or the largest performance. Smallest configuration first."""
    best = {
        key: BEST[kind](runs.seconds[rows].tolist())
        for key, rows in positions(zip(runs.ranks.tolist(), runs.size.tolist(), strict=True)).items()
    }
    ranks, size = np.array(sorted(best)).T
    return Runs.of(ranks, [best[key] for key in sorted(best)], size=size)


def evaluate(
    series: tuple[str, ...],
    runs: Runs,
    kind: Kind,
    smallest: float = 1,
    largest: float | None = None,
    *,
    copies: bool = False,
) -> list[Target]:
    """Score every law on one series, learned from `smallest` to `largest` ranks, at the larger scales.

    largest: None for the lower half of the scales. copies: fit Barnes' laws to copies of runs that favour large scales
    (`laws.copied`); the others fit one value per configuration or scale. Raises ValueError if there is nothing to learn
    or nothing to score.
    """
    runs = runs.select(runs.ranks >= smallest)
    scales = runs.scales
    if scales.size < 2:
        raise ValueError(f"{scales.size} scale, expected at least 2: some to learn from and some to score")
    cutoff = lower_half(runs) if largest is None else largest
    best = best_of_repeats(runs, kind)
    known, targets = best.select(best.ranks <= cutoff), best.select(best.ranks > cutoff)
    if not len(known) or not len(targets):
        raise ValueError(f"{len(known)} configurations up to {cutoff:g} ranks and {len(targets)} beyond, expected both")
    errors: dict[str, Floats] = {}
    reasons: dict[str, str] = {}
    for name, fit in laws_of(kind, copies=copies).items():
        try:
            curve = fit(known)
            found = curve(targets.ranks, targets.nodes, targets.size)
        except ValueError as error:
            found = np.full(len(targets), np.nan)
            reasons[name] = str(error)
        errors[name] = relative_error(targets.seconds, found)
    return [
        Target(
            series,
            kind,
            float(ranks),
            float(size),
            {name: float(column[i]) for name, column in errors.items()},
            reasons,
        )
        for i, (ranks, size) in enumerate(zip(targets.ranks, targets.size, strict=True))
    ]


def _perfect(kind: Kind) -> Callable[[Runs], RuntimeCurve]:
    def fit(runs: Runs) -> RuntimeCurve:
        at = int(np.argmax(runs.ranks))
        ranks_there, value = float(runs.ranks[at]), float(runs.seconds[at])
        if kind == "time":
            return lambda ranks, nodes, size: np.full(ranks.size, value)
        return lambda ranks, nodes, size: np.asarray(value * ranks / ranks_there)

    return fit


def _rival(model: Model, *, sized: bool) -> Callable[[Runs], RuntimeCurve]:
    """The model's curve; without sizes unless `sized`."""

    def fit(runs: Runs) -> RuntimeCurve:
        curve = model.fit({"": runs if sized else Runs.of(runs.ranks, runs.seconds)}, 0)[""]
        if isinstance(curve, str):
            raise ValueError(curve)
        return curve if sized else lambda ranks, nodes, size: curve(ranks, nodes, np.ones(ranks.size))

    return fit


def laws_of(kind: Kind, *, copies: bool = False) -> dict[str, Callable[[Runs], RuntimeCurve]]:
    """The law and its rivals, by their names in tables. copies: as in `evaluate`."""
    rivals = {model.name: model for model in laws.MODELS}
    weighted = laws.with_copies if copies else lambda model: model
    return {
        BILINEAR: log_bilinear(intercept=False),
        f"{BILINEAR} + intercept": log_bilinear(intercept=True),
        **{name: _rival(weighted(rivals[name]), sized=True) for name in SIZED_RIVALS},
        **{model.name: _rival(model, sized=False) for model in extrap.models()},
        "perfect": _perfect(kind),
    }


def tables(targets: Sequence[Target]) -> list[Grid]:
    """The paper's table of relative errors per target in per cent, and mean, median and largest per law."""
    found = []
    for kind in dict.fromkeys(target.kind for target in targets):
        rows = [target for target in targets if target.kind == kind]
        names = list(rows[0].errors)
        labels = [f"{', '.join(row.series)}, {row.ranks:g}" for row in rows]
        each: list[list[float | None]] = [[100 * row.errors[name] for name in names] for row in rows]
        found.append(Grid(f"Relative error of {kind}, per cent, per target", labels, names, each, "target"))
        summary = [[over_known(average, column) for column in zip(*each, strict=True)] for average in AVERAGES.values()]
        found.append(
            Grid(
                f"Relative error of {kind}, per cent, {len(rows)} target{'s' * (len(rows) != 1)}",
                list(AVERAGES),
                names,
                summary,
                "over targets",
            )
        )
    return found
