"""The data of a report on an application: runs by scale, classes, prediction, and accuracy of past predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barograph.report.classes import ClassReport, largest_classes
from barograph.report.coverage import BandCoverage, band_coverage
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row
from barograph.views.modeler import question
from barograph.views.refusal import NoResult, NothingKnown
from barograph.views.words import listed, param_map, plural
from barograph_modeler.forecasts.scoreboard import ForecastScore
from barograph_modeler.maxima.sample import Floats


@dataclass(frozen=True)
class RunsAtScale:
    """Runtimes in seconds on one number of ranks and nodes, and the newest band of the next one."""

    workload: str
    ranks: int
    nodes: int
    healthy: Floats
    alarmed: Floats
    failed: int
    band: Row | None

    @property
    def name(self) -> str:
        """Ranks, and nodes where there are several."""
        return plural(self.ranks, "rank") + (f" on {self.nodes:,} nodes" if self.nodes > 1 else "")

    @property
    def tick(self) -> str:
        """The same in two lines for an axis."""
        return f"{self.ranks:,}" + (f"\n{self.nodes:,} nodes" if self.nodes > 1 else "")


@dataclass(frozen=True)
class ApplicationReport:
    """The data of the page. answer: the modeler's, None where it gave none: `error` says why.

    forecasts: predictions made while runs ran, with their outcomes. scores: the same by number of ranks.
    """

    app: str
    cluster: str
    params: Mapping[str, str]
    other_params: int
    since: float
    until: float
    scales: Sequence[RunsAtScale]
    classes: Sequence[ClassReport]
    forecasts: Sequence[Row]
    scores: Mapping[int, ForecastScore]
    coverage: Sequence[BandCoverage]
    alarms: Sequence[Row]
    answer: Mapping[str, Any] | None
    error: str


def gather(
    context: ViewContext, app: str, cluster: str | None, params: Mapping[str, str], ranks: int | None, since: float
) -> ApplicationReport:
    """Query log and modeler. ranks: to predict for, by default twice the largest scale. Raises NothingKnown."""
    every = context.rows(queries.ended_runs(app, cluster, since))
    if not every:
        raise NothingKnown(f"no finished run of {app!r} is in the log{' since then' if since else ''}")
    clusters = sorted({run["cluster"] for run in every})
    if len(clusters) > 1:
        raise NothingKnown(f"{app} has run on {', '.join(clusters)}, expected --cluster with one of them")
    text, others = _select(every, params)
    selected = [run for run in every if run["params"] == text]
    runs = queries.ProblemRuns(app, clusters[0], text, since)
    bands = context.rows(runs.bands())
    scales = _by_scale(selected, {row["workload"]: row for row in bands if row["kind"] == "runtime"})
    forecasts = context.rows(runs.forecasts())
    answer, failure = None, ""
    try:
        at = ranks or 2 * max(scale.ranks for scale in scales)
        answer = context.predict(question(param_map(text), app=app, cluster=runs.cluster, ranks=at, curve=1))
    except NoResult as error:
        failure = str(error)
    return ApplicationReport(
        app=app,
        cluster=runs.cluster,
        params=param_map(text),
        other_params=others,
        since=min(run["ended_at"] for run in selected),
        until=max(run["ended_at"] for run in selected),
        scales=scales,
        classes=largest_classes(context, runs, {scale.workload: scale.ranks for scale in scales}, bands),
        forecasts=forecasts,
        scores=_scored(forecasts),
        coverage=band_coverage(context.modeler.url, [scale.workload for scale in scales]),
        alarms=context.rows(runs.alarms()),
        answer=answer,
        error=failure,
    )


def _select(runs: Sequence[Row], params: Mapping[str, str]) -> tuple[str, int]:
    """The text of these parameters in the log and the number of other sets. Without params: those of the most runs.

    Raises NothingKnown.
    """
    counts = Counter(run["params"] for run in runs)
    if not params:
        return counts.most_common(1)[0][0], len(counts) - 1
    for text in counts:
        if param_map(text) == params:
            return text, len(counts) - 1
    known = "; ".join(sorted(listed(param_map(text), " ") or "no parameters" for text in counts)[:5])
    raise NothingKnown(f"no run with {listed(params, ' ')} in that time, expected parameters such as: {known}")


def _by_scale(runs: Sequence[Row], bands: Mapping[str, Row]) -> list[RunsAtScale]:
    """The runs of one problem by scale. bands: of runtimes, by workload."""

    def seconds(rows: Sequence[Row], alarmed: bool) -> Floats:
        return np.array([row["runtime_seconds"] for row in rows if row["alarmed"] is alarmed], dtype=np.float64)

    found: dict[str, list[Row]] = {}
    for run in runs:
        found.setdefault(run["workload"], []).append(run)
    scales = []
    for workload, rows in found.items():
        succeeded = [row for row in rows if row["exit_status"] == 0]
        runtimes = seconds(succeeded, alarmed=False), seconds(succeeded, alarmed=True)
        size = rows[0]["ranks"], rows[0]["nodes"]
        scales.append(RunsAtScale(workload, *size, *runtimes, len(rows) - len(succeeded), bands.get(workload)))
    return sorted(scales, key=lambda scale: (scale.ranks, scale.nodes))


def _scored(forecasts: Sequence[Row]) -> dict[int, ForecastScore]:
    """Scores by number of ranks, ascending."""
    scores: dict[int, ForecastScore] = {}
    for row in sorted(forecasts, key=lambda row: int(row["ranks"])):
        score = scores.setdefault(row["ranks"], ForecastScore())
        score.results[row["result"]] += 1
        if row["result"] in ("inside", "outside"):
            score.errors.append(abs(row["relative_error"]))
    return scores
