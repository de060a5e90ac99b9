"""Predicted runtimes at larger scales, medians and limits: figures 5 to 9 of Dominguez-Trujillo et al.

From the first ranks of a program to more and more of them. A runtime is the number of intervals times their mean
maximum. The observed runtime at a scale is that of the first so many ranks, in the other half of the intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib as mpl

from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.scaling import Projection
from barograph_modeler.studies.bands.bootstraps import MIN_RANKS, SINGLE_RANKS, rank_times
from barograph_modeler.studies.plot import panels, save_with_legend
from barograph_modeler.studies.series import Series

COLORS: Final = dict(zip(SINGLE_RANKS, mpl.colormaps["tab10"](range(len(SINGLE_RANKS))), strict=True))
STEP: Final = 0.06
"""Distance between the methods of one scale, in doublings."""


class RuntimeGrowth(NamedTuple):
    """Runtimes of one program by number of ranks, in the unit of the values: observed, and predicted by each method."""

    name: str
    seen: int
    observed: dict[int, float]
    predicted: dict[str, dict[int, Projection]]


def growths(series: Sequence[Series], rank: str, node: str | None = None) -> list[RuntimeGrowth]:
    """The programs of `single_ranks`, each predicted from its first two ranks or its first node."""
    found = []
    for key, times in rank_times(series, rank, node):
        nodes, each, intervals = times.shape
        half = intervals // 2
        if nodes * each < MIN_RANKS or nodes < 2 or half < MINIMUM_SAMPLES:
            continue
        found.append(_growth(", ".join(key.values()), times, 1 if node is not None else 2, half))
    return found


def _growth(name: str, times: Floats, seen: int, half: int) -> RuntimeGrowth:
    nodes, each, intervals = times.shape
    scales = sorted({*(seen * 2**k for k in range(nodes.bit_length()) if seen * 2**k < nodes), nodes})
    rest = intervals - half
    observed = {n * each: float(times[:n, :, half:].max(axis=(0, 1)).sum()) for n in scales}
    predicted = {
        method: {n * each: _times(predict(times[:seen, :, :half], n * each), rest) for n in scales}
        for method, predict in SINGLE_RANKS.items()
    }
    return RuntimeGrowth(name, seen * each, observed, predicted)


def _times(band: Projection, intervals: int) -> Projection:
    lower, expected, upper = (intervals * limit for limit in (band.lower, band.expected, band.upper))
    return Projection(lower, expected, upper, band.replicas)


def plot_growth(found: Sequence[RuntimeGrowth], value: str, path: Path) -> None:
    """Write a PNG: medians and limits of runtimes over ranks. value: axis label. Raises ValueError for no program."""
    if not found:
        raise ValueError(f"no program has {MIN_RANKS} ranks with {2 * MINIMUM_SAMPLES} intervals each")
    figure, drawn = panels(found)
    for axes, one in drawn:
        for place, (method, bands) in enumerate(one.predicted.items()):
            at = [ranks * 2 ** (STEP * (place + 1)) for ranks in bands]
            low, middle, high = (
                [getattr(band, limit) for band in bands.values()] for limit in ("lower", "expected", "upper")
            )
            axes.vlines(at, low, high, color=COLORS[method], lw=1.5)
            axes.plot(at, middle, "o", ms=3.5, color=COLORS[method], label=method)
        axes.plot(list(one.observed), list(one.observed.values()), "s-", ms=4, lw=0.8, color="black", label="observed")
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(one.observed), [str(ranks) for ranks in one.observed])
        axes.set(xlabel="ranks", ylabel=f"sum of {value}")
        axes.set_title(f"{one.name}, from {one.seen} ranks", loc="left", fontsize=8)
    save_with_legend(figure, path)
