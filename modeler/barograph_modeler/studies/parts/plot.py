"""The parts of predicted runtimes over ranks, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from barograph_modeler.studies.parts.study import OURS, ScenarioError

MAX_DRAWN: Final = 6
"""Scenarios that are drawn: the first."""


def plot_parts(rows: Sequence[ScenarioError], path: Path) -> None:
    """Draw shares of the predicted time over ranks for each of the first scenarios, and the observed time as points."""
    from matplotlib.figure import Figure

    known = [row for row in rows if row.model == OURS]
    numbers = list(dict.fromkeys(row.scenario for row in known))[:MAX_DRAWN]
    figure = Figure(figsize=(4 * min(3, len(numbers)), 3.2 * -(-len(numbers) // 3)), layout="constrained")
    for place, number in enumerate(numbers):
        mine = [row for row in known if row.scenario == number]
        axes = figure.add_subplot(-(-len(numbers) // 3), min(3, len(numbers)), place + 1)
        ranks = [row.ranks for row in mine]
        names = list(mine[0].parts)
        seconds = np.array([[row.parts[name] for row in mine] for name in sorted(names)])
        axes.stackplot(ranks, seconds / seconds.sum(axis=0) * 100, labels=sorted(names), alpha=0.8)
        observed = np.array([row.observed for row in mine]) / seconds.sum(axis=0) * 100
        axes.plot(ranks, observed, "k.", label="observed")
        axes.set(xscale="log", xlabel="ranks", ylabel="% of predicted time")
        axes.set_title(f"scenario {number}, {'strong' if mine[0].is_strong else 'weak'}", fontsize=9)
        if place == 0:
            axes.legend(fontsize=6, loc="lower left")
    figure.savefig(path, dpi=150)
