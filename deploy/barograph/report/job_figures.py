"""The figures of a report on a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from barograph.report.drawing import plain, styled
from barograph.report.job import Phase
from barograph.views.job import JobSummary
from barograph.views.log import Row, limits
from barograph.views.projection import ASKED, BAND, DOTS, LINE

NODES: Final = 30
"""Nodes drawn; of more, those that the others waited for most."""


def timeline(job: JobSummary, phases: Sequence[Phase]) -> Figure:
    """Intervals of a job's classes over time, over their bands, with onset and alarm."""
    with styled(1.2 + 2 * len(phases)) as figure:
        panels = figure.subplots(len(phases), 1, sharex=True, squeeze=False)[:, 0]
        for axes, phase in zip(panels, phases, strict=True):
            if phase.band is not None:
                lower, expected, upper = limits(phase.band, 1e3)
                axes.axhspan(lower, upper, color=BAND, lw=0, zorder=1, label="95 % of healthy intervals")
                axes.axhline(expected, color=LINE, lw=1, zorder=2)
            axes.plot(phase.at - job.started_at, 1e3 * phase.seconds, ".", color=DOTS, ms=2.5, alpha=0.6, zorder=3)
            for name, at, style in (("onset", job.onset_at, ":"), ("alarm", job.alarmed_at, "-")):
                if at is not None:
                    axes.axvline(at - job.started_at, color=ASKED, lw=1.2, ls=style, zorder=4, label=name)
            axes.set_title(f"{phase.letter}: {phase.share:.0%} of the time")
            axes.set_ylabel("ms")
            plain(axes)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=4, frameon=False, fontsize=9)
        panels[-1].set_xlabel("seconds since the start of the run")
    return figure


def nodes(rows: Sequence[Row], members: Sequence[str]) -> Figure:
    """Work and waiting of each node for one sync point. members: the nodes that an alarm is attributed to."""
    shown = rows[:NODES]
    with styled(1 + 0.24 * len(shown)) as figure:
        axes = figure.subplots()
        at = np.arange(len(shown))
        own, waited = (1e3 * np.array([row[name] for row in shown]) for name in ("own_seconds", "waited_seconds"))
        axes.barh(at, own, color=[ASKED if row["host"] in members else LINE for row in shown])
        axes.barh(at, waited, left=own, color=BAND)
        axes.set_yticks(at, [row["host"] for row in shown])
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds of a rank from one sync point to the next, the mean")
        handles = [Patch(color=LINE, label="own work"), Patch(color=BAND, label="waiting")]
        if members:
            handles.append(Patch(color=ASKED, label="own work of the cause"))
        figure.legend(handles=handles, loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    return figure
