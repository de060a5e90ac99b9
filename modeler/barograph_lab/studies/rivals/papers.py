"""The papers' models as rows of `barograph backtest scaling`.

Each size of each problem is a group of runs with its own serial time, measured or estimated: strong scaling, w = 1.
The cutoff c_f of a group is its largest scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from barograph_lab.studies.greybox.fraction import TooFewRuns, estimate_share, serial_time
from barograph_lab.studies.greybox.greybox import METHODS, GreyBox, OverheadMethod
from barograph_lab.studies.greybox.oliveira import Oliveira
from barograph_lab.studies.greybox.samples import Points
from barograph_lab.studies.greybox.speedup import corrected_time, overhead
from barograph_lab.studies.rivals.laws import Model, RuntimeCurve, each
from barograph_lab.studies.weak.weak import LogBilinear
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs


class SizeGroup(NamedTuple):
    """The runs of one size of one problem, and their serial time."""

    number: int
    runs: Runs
    serial: float


def fit_greybox(method: OverheadMethod, problems: Mapping[str, Runs], seed: int) -> dict[str, RuntimeCurve | str]:
    """One overhead model for all problems of an application; a curve per problem, or the reason why there is none."""
    curves: dict[str, RuntimeCurve | str] = {}
    groups: dict[str, dict[float, SizeGroup]] = {}
    number = count()
    for name, runs in problems.items():
        parts = {float(size): runs.select(runs.size == size) for size in np.unique(runs.size)}
        try:
            groups[name] = {size: SizeGroup(next(number), part, serial_time(part)) for size, part in parts.items()}
        except TooFewRuns as error:
            curves[name] = str(error)
    try:
        trained = _train(method, [group for sizes in groups.values() for group in sizes.values()], seed)
    except TooFewRuns as error:
        return curves | dict.fromkeys(groups, str(error))
    return curves | {name: partial(_seconds, sizes, *trained) for name, sizes in groups.items()}


def _train(method: OverheadMethod, groups: list[SizeGroup], seed: int) -> tuple[float, Points, GreyBox, Floats]:
    if not groups:
        raise TooFewRuns("no problem with a serial time, expected one")
    runs = reduce(Runs.joined, (group.runs for group in groups))
    repeats = [len(group.runs) for group in groups]
    number = np.repeat([group.number for group in groups], repeats).astype(np.intp)
    serial = np.repeat([group.serial for group in groups], repeats)
    c_f = np.repeat([group.runs.ranks.max() for group in groups], repeats)
    ones = np.ones(len(runs))
    share = estimate_share(runs.ranks, ones, serial / runs.seconds)
    known = Points.of(runs, number, ones, overhead(runs.seconds, serial, runs.ranks, 1, share))
    return share, known, GreyBox(method, known, c_f, seed), c_f / 2


def _seconds(
    sizes: Mapping[float, SizeGroup],
    share: float,
    known: Points,
    model: GreyBox,
    c_h: Floats,
    ranks: Floats,
    nodes: Floats,
    size: Floats,
) -> Floats:
    answer = np.full(ranks.size, np.nan)
    for m, group in sizes.items():
        at = np.flatnonzero(size == m)
        if not at.size:
            continue
        ones = np.ones(at.size)
        runs = Runs(ranks[at], nodes[at], size[at], ones)
        asked = Points.of(runs, np.full(at.size, group.number, dtype=np.intp), ones, np.full(at.size, np.nan))
        targets = np.arange(known.ranks.size, known.ranks.size + at.size)
        # Points to predict have no tau and so are never runs at small scale, whatever their cutoff.
        tau = model.predict(known.joined(asked), targets, np.concatenate([c_h, np.zeros(at.size)]))
        found = ~np.isnan(tau)
        answer[at[found]] = corrected_time(group.serial, ranks[at[found]], 1, share, tau[found])
    return answer


def fit_oliveira(problems: Mapping[str, Runs], seed: int) -> dict[str, RuntimeCurve | str]:
    """Oliveira's model, problem by problem."""
    return each(partial(_oliveira, seed))(problems, seed)


def _oliveira(seed: int, runs: Runs) -> RuntimeCurve:
    serial = {float(m): serial_time(runs.select(runs.size == m)) for m in np.unique(runs.size)}
    model = Oliveira.fit(runs.ranks, runs.size, np.array([serial[m] for m in runs.size]) / runs.seconds, seed=seed)

    def seconds(ranks: Floats, nodes: Floats, size: Floats) -> Floats:
        times = np.array([serial.get(m, np.nan) for m in size])
        return np.asarray(times / model.speedup(ranks, size))

    return seconds


def log_bilinear(intercept: bool) -> Callable[[Runs], RuntimeCurve]:
    """The law of weak scaling, fitted to the least seconds of each configuration. Raises ValueError for too few.

    Without sizes it is a power law of the ranks.
    """

    def fit(runs: Runs) -> RuntimeCurve:
        law = LogBilinear(intercept=intercept)
        for ranks, size, seconds in zip(runs.ranks, runs.size, runs.seconds, strict=True):
            law.learn(float(ranks), float(size), float(seconds))
        law.coefficients  # noqa: B018 - raises for too few runs

        def seconds_at(ranks: Floats, nodes: Floats, size: Floats) -> Floats:
            with np.errstate(over="ignore"):  # parabolas overflow far out
                found = law.predict(ranks, size)
            return np.asarray(np.where(np.isfinite(found) & (found > 0), found, np.nan))

        return seconds_at

    return fit


MODELS: Final = (
    *(Model(method.name, method.help, partial(fit_greybox, method)) for method in METHODS),
    Model("oliveira", "Oliveira's speedup model, fitted by particle swarm", fit_oliveira),
    Model("weak-log-bilinear", "log-bilinear law of weak scaling in ranks and size", each(log_bilinear(False))),
    Model("weak-log-bilinear-intercept", "the same with an intercept", each(log_bilinear(True))),
)
