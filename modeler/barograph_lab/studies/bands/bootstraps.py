"""The paper's bootstraps of whole runs and of single ranks, scored on later runs and intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from barograph_lab.studies.bands.methods import SEED, Limits
from barograph_lab.studies.bands.score import ScoreRow, score
from barograph_lab.studies.maxima.nodes import inter_node, intra_node
from barograph_lab.studies.maxima.runs import runtime_interval, runtime_replicas
from barograph_lab.studies.series import Series, positions
from barograph_modeler.maxima.fits.bootstrap import pwm_replicas
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.predictive import SeriesLimits
from barograph_modeler.maxima.runtime import runtime_band
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.scaling import Projection, emmas, mean_maximum, percentile_interval

EARLIER: Final = 3
"""Runs before the first scored one: fewer have no band of runtimes."""
MIN_RANKS: Final = 4
"""Ranks of a program in whose bootstraps some ranks stand for all."""

WHOLE_RUNS: Final[Mapping[str, Callable[[Sequence[Floats], int], Limits | None]]] = {
    "sums": lambda runs, n: runtime_interval(runs, n, seed=SEED),
    "sums-plain": lambda runs, n: percentile_interval(runtime_replicas(runs, n, seed=SEED, inflated=False)),
    "log-t": lambda runs, n: runtime_band([n * float(run.mean()) for run in runs]),
}
"""Bands for a run of n intervals from the intervals of earlier runs: sums of intervals drawn run by run, with and
without inflation for the number of runs, and the daemon's band of runtimes."""

SINGLE_RANKS: Final[Mapping[str, Callable[[Floats, int], Projection]]] = {
    "inter-node": lambda times, ranks: inter_node(times, ranks, seed=SEED),
    "inter-node-mom": lambda times, ranks: inter_node(times, ranks, seed=SEED, method="mom"),
    "intra-node": lambda times, ranks: intra_node(times, ranks, seed=SEED),
    "intra-node-mom": lambda times, ranks: intra_node(times, ranks, seed=SEED, method="mom"),
    "emma": lambda times, ranks: percentile_interval(
        emmas(pwm_replicas(_maxima(times), seed=SEED), _growth(times, ranks))
    ),
    "resampled": lambda times, ranks: mean_maximum(_maxima(times), _growth(times, ranks), seed=SEED),
}
"""Intervals for the mean maximum over a number of ranks, from times of shape (nodes, ranks of a node, intervals) of the
ranks seen. If hosts are not known, a rank counts as a node of one rank: inter-node bootstraps single ranks, intra-node
their maximum. `resampled` is the paper's non-parametric bootstrap, of the maximum over all ranks seen."""


def _maxima(times: Floats) -> Floats:
    return np.asarray(times.max(axis=(0, 1)))


def _growth(times: Floats, ranks: int) -> float:
    return float(ranks / (times.shape[0] * times.shape[1]))


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


def rank_times(series: Sequence[Series], rank: str, node: str | None = None) -> Iterator[tuple[dict[str, str], Floats]]:
    """The times of each program as (nodes, ranks of a node, intervals), with the cells of its other columns.

    series: one per rank. node: the column of hosts; None for nodes of one rank. Nodes are cut to as many ranks as the
    smallest has, series to as many intervals as the shortest has.
    """
    for key, ranks in _grouped(series, rank, *([] if node is None else [node])):
        intervals = min(one.values.size for one in ranks)
        hosts = positions(str(number) if node is None else one.key[node] for number, one in enumerate(ranks))
        each = min(len(members) for members in hosts.values())
        chosen = [members[:each] for members in hosts.values()]
        yield key, np.array([[ranks[i].values[:intervals] for i in members] for members in chosen])


def single_ranks(series: Sequence[Series], rank: str, node: str | None = None) -> Iterator[ScoreRow]:
    """Score intervals for the mean of maxima over all ranks, from some of them: the first 1, 2, 4 ... nodes or 2, 4 ...
    ranks.

    Arguments as `rank_times`. Fitted to the first half of the intervals, scored on the mean over the second half.
    Programs of fewer than 4 ranks, on a single node or with too few intervals are left out.
    """
    for key, times in rank_times(series, rank, node):
        nodes, each, intervals = times.shape
        half, ranks = intervals // 2, nodes * each
        if ranks < MIN_RANKS or half < MINIMUM_SAMPLES:
            continue
        mean = np.array([times[:, :, half:].max(axis=(0, 1)).mean()])
        seen = 2 if node is None else 1
        while seen < nodes:
            factor = nodes / seen
            for name, predict in SINGLE_RANKS.items():
                band = predict(times[:seen, :, :half], ranks)
                limits = SeriesLimits(np.array([band.lower]), np.array([band.upper]))
                task = f"{'ranks' if node is None else 'nodes'}-{factor:g}x"
                row = score(
                    name, task, Series(key, float(ranks), mean), limits, mean, fitted=seen * each * half, factor=factor
                )
                observed = float(mean[0])
                yield replace(
                    row,
                    median_error=abs(band.expected / observed - 1),
                    relative_width=(band.upper - band.lower) / observed,
                )
            seen *= 2


def _grouped(series: Sequence[Series], *columns: str) -> list[tuple[dict[str, str], list[Series]]]:
    """Series that differ in some columns only, in input order, with the cells of the other columns."""
    keys = [{name: cell for name, cell in one.key.items() if name not in columns} for one in series]
    groups = positions(tuple(key.values()) for key in keys)
    return [(keys[members[0]], [series[i] for i in members]) for members in groups.values()]
