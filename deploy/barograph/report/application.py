"""What a report on an application shows: its runs by scale, its classes, what is predicted, how good that was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barograph.commands.predict import ModelerUnreachable, PredictionRefused, ask
from barograph.report.classes import Class, largest
from barograph.report.coverage import BandCoverage, judged
from barograph.report.log import ReportLog, Row
from barograph.report.runs import ALARMED, RunsAtScale, Where, by_scale, chosen, ended_runs, parsed
from barograph_modeler.forecasts.scoreboard import ForecastScore


@dataclass(frozen=True)
class ApplicationReport:
    """Everything the page says. `said`: the modeler's answer, None where there is none: `trouble` says why."""

    app: str
    cluster: str
    params: Mapping[str, str]
    other_params: int
    since: float
    until: float
    scales: Sequence[RunsAtScale]
    classes: Sequence[Class]
    forecasts: Sequence[Row]
    scores: Mapping[int, ForecastScore]
    judged: Sequence[BandCoverage]
    alarms: Sequence[Row]
    said: Mapping[str, Any] | None
    trouble: str


def gather(
    log: ReportLog,
    app: str,
    cluster: str | None,
    params: Mapping[str, str],
    ranks: int | None,
    since: float,
    modeler: str,
) -> ApplicationReport:
    """Ask log and modeler. ranks: to predict for, twice the largest scale by default. Raises NothingKnown."""
    every = ended_runs(log, app, cluster, since)
    text, others = chosen(every, params)
    mine = [run for run in every if run["params"] == text]
    where = Where(app, mine[0]["cluster"], text, since)
    bands = log.rows(
        f"""SELECT * FROM bands WHERE workload IN (SELECT workload FROM jobs WHERE {where.subject})
        QUALIFY row_number() OVER (PARTITION BY workload, class_id, method ORDER BY "offset" DESC) = 1"""
    )
    scales = by_scale(mine, {row["workload"]: row for row in bands if row["kind"] == "runtime"})
    forecasts = _forecasts(log, where.jobs)
    at = ranks or 2 * max(scale.ranks for scale in scales)
    said, trouble = _predicted(modeler, app, where.cluster, parsed(text), at)
    return ApplicationReport(
        app=app,
        cluster=where.cluster,
        params=parsed(text),
        other_params=others,
        since=min(run["ended_at"] for run in mine),
        until=max(run["ended_at"] for run in mine),
        scales=scales,
        classes=largest(log, where.healthy, scales, bands),
        forecasts=forecasts,
        scores=_scored(forecasts),
        judged=judged(modeler, [scale.workload for scale in scales]),
        alarms=_alarms(log, where.jobs),
        said=said,
        trouble=trouble,
    )


def _forecasts(log: ReportLog, jobs: str) -> list[Row]:
    """Predictions that were made while jobs ran, with what came of them, in the order of their making."""
    return log.rows(
        f"""SELECT predictions.*, actual_seconds, result, outcomes.relative_error
        FROM predictions JOIN outcomes USING (job) WHERE job IN ({jobs}) ORDER BY made_at, job"""
    )


def _scored(forecasts: Sequence[Row]) -> dict[int, ForecastScore]:
    """By ranks."""
    scores: dict[int, ForecastScore] = {}
    for row in sorted(forecasts, key=lambda row: int(row["ranks"])):
        score = scores.setdefault(row["ranks"], ForecastScore())
        score.results[row["result"]] += 1
        if row["result"] in ("inside", "outside"):
            score.errors.append(abs(row["relative_error"]))
    return scores


def _alarms(log: ReportLog, jobs: str) -> list[Row]:
    """The newest row of each job that has alarmed, the newest job first."""
    return log.rows(
        f"""SELECT * FROM scores WHERE job IN ({jobs}) AND state IN ({ALARMED})
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY "offset" DESC) = 1 ORDER BY alarmed_at DESC"""
    )


def _predicted(
    modeler: str, app: str, cluster: str, params: Mapping[str, str], ranks: int
) -> tuple[Mapping[str, Any] | None, str]:
    fields = {"app": app, "cluster": cluster, "ranks": ranks, "curve": 1}
    try:
        return ask(modeler, fields | {f"param.{name}": value for name, value in params.items()}), ""
    except (ModelerUnreachable, PredictionRefused) as error:
        return None, str(error)
