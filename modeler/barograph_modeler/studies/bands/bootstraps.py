"""The paper's bootstraps of whole runs and of single ranks, scored on later runs and intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from barograph_modeler.maxima.fits.bootstrap import pwm_replicas
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.predictive import SeriesLimits
from barograph_modeler.maxima.runtime import runtime_band
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.bands.methods import SEED, Limits
from barograph_modeler.studies.bands.score import ScoreRow, score
from barograph_modeler.studies.maxima.nodes import inter_node, intra_node
from barograph_modeler.studies.maxima.runs import RunHistory, runtime_interval, runtime_replicas
from barograph_modeler.studies.maxima.scaling import emmas, percentile_interval
from barograph_modeler.studies.series import Series, positions

EARLIER: Final = 3
"""Runs before the first scored one: fewer have no band of runtimes."""

WHOLE_RUNS: Final[Mapping[str, Callable[[Sequence[Floats], int], Limits | None]]] = {
    "sums": lambda runs, n: runtime_interval(RunHistory.of(runs, np.zeros(len(runs))), n, seed=SEED),
    "sums-plain": lambda runs, n: percentile_interval(
        runtime_replicas(RunHistory.of(runs, np.zeros(len(runs))), n, seed=SEED, inflated=False)
    ),
    "log-t": lambda runs, n: runtime_band([n * float(run.mean()) for run in runs]),
}
"""Bands for a run of n intervals from the intervals of earlier runs: sums of intervals drawn run by run, with and
without inflation for the number of runs, and the daemon's band of runtimes."""

SINGLE_RANKS: Final[Mapping[str, Callable[[Floats, int], Limits]]] = {
    "inter-node": lambda times, ranks: inter_node(times[:, None], ranks, seed=SEED),
    "inter-node-mom": lambda times, ranks: inter_node(times[:, None], ranks, seed=SEED, method="mom"),
    "intra-node": lambda times, ranks: intra_node(times[:, None], ranks, seed=SEED),
    "intra-node-mom": lambda times, ranks: intra_node(times[:, None], ranks, seed=SEED, method="mom"),
    "emma": lambda times, ranks: percentile_interval(
        emmas(pwm_replicas(times.max(axis=0), seed=SEED), ranks / len(times))
    ),
}
"""Intervals for the mean maximum over a number of ranks from times of shape (ranks seen, intervals). A rank counts as a
node of one rank: inter-node bootstraps single ranks, intra-node their maximum."""


def whole_runs(series: Sequence[Series], run: str) -> Iterator[ScoreRow]:
    """Score bands for the total of each run's intervals, from the earlier runs of its workload.

    series: one per run. run: the column that identifies a run in its workload. Workloads of at most EARLIER runs are
    left out.
    """
    for key, runs in _grouped(series, run):
        values = [one.values for one in runs]
        if len(values) <= EARLIER:
            continue
        totals = np.array([float(one.sum()) for one in values[EARLIER:]])
        for name, predict in WHOLE_RUNS.items():
            bands = [predict(values[:i], values[i].size) for i in range(EARLIER, len(values))]
            both = [(np.nan, np.nan) if band is None else (band.lower, band.upper) for band in bands]
            limits = SeriesLimits(*np.array(both).T)
            yield score(name, "whole-run", Series(key, None, totals), limits, totals, fitted=EARLIER)


def single_ranks(series: Sequence[Series], rank: str) -> Iterator[ScoreRow]:
    """Score intervals for the mean of maxima over all ranks, from the first 2, 4, 8 ... of them.

    series: one per rank. rank: the column that identifies a rank in its program. Fitted to the first half of the
    intervals, scored on the mean over the second half. Programs of fewer than 4 ranks or with too few intervals are
    left out.
    """
    for key, ranks in _grouped(series, rank):
        times = np.stack([one.values[: min(other.values.size for other in ranks)] for one in ranks])
        half = times.shape[1] // 2
        if len(times) < 4 or half < MINIMUM_SAMPLES:
            continue
        mean = np.array([times[:, half:].max(axis=0).mean()])
        seen = 2
        while seen < len(times):
            for name, predict in SINGLE_RANKS.items():
                band = predict(times[:seen, :half], len(times))
                limits = SeriesLimits(np.array([band.lower]), np.array([band.upper]))
                factor = len(times) / seen
                one = Series(key, float(len(times)), mean)
                yield score(name, f"ranks-{factor:g}x", one, limits, mean, fitted=seen * half, factor=factor)
            seen *= 2


def _grouped(series: Sequence[Series], column: str) -> list[tuple[dict[str, str], list[Series]]]:
    """Series that differ in one column only, in input order, with the cells of the other columns."""
    keys = [{name: cell for name, cell in one.key.items() if name != column} for one in series]
    groups = positions(tuple(key.values()) for key in keys)
    return [(keys[members[0]], [series[i] for i in members]) for members in groups.values()]
