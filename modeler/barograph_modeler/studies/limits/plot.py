"""A plot of a back-test of time limits as a PNG file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.limits.rivals import OURS
from barograph_modeler.studies.limits.score import LimitsScore, accuracies

BINS: Final = 50
"""Points of accuracy over time."""
GREEN: Final = "#1f6f43"
COLORS: Final = ("#777777", "#4a6fa5", "#c77700")


def plot_limits(scores: list[LimitsScore], predicted: Mapping[str, Floats], runtimes: Floats, path: Path) -> None:
    """Write a PNG: share asked against share killed in each part of the log, and accuracy over the jobs of the log."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=110)
    risks, times = figure.subplots(1, 2)
    for ours, marker in zip((one for one in scores if one.predictor == OURS), "os^", strict=False):
        asked = [100 * one.risk for one in ours.limits]
        risks.plot(asked, [100 * one.killed for one in ours.limits], marker, color=GREEN, alpha=0.7, label=ours.part)
    line = np.array([min(asked) / 2, max(asked) * 2])
    risks.fill_between(line, 0.8 * line, 1.2 * line, color="#333333", alpha=0.1, lw=0, label="within 20 %")
    risks.plot(line, line, color="#333333", lw=0.8)
    risks.set(xscale="log", yscale="log", xlabel="jobs killed, asked (%)", ylabel="jobs killed (%)")
    risks.legend(frameon=False, fontsize=8)
    bins = [one for one in np.array_split(np.arange(runtimes.size), BINS) if one.size]
    colors = iter(COLORS)
    for name, seconds in predicted.items():
        accuracy = accuracies(seconds, runtimes)
        known = [one for one in bins if not np.isnan(accuracy[one]).all()]
        means = [np.nanmean(accuracy[one]) for one in known]
        color = GREEN if name == OURS else next(colors, "#777777")
        times.plot([one.mean() for one in known], means, color=color, lw=1.2, label=name)
    times.set(xlabel="jobs submitted", ylabel="accuracy", ylim=(0, 1))
    times.legend(frameon=False, fontsize=8)
    figure.savefig(path)
