"""The data of a report on an application: runs by scale, classes, prediction, and accuracy of past predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from barograph.charts.parts import parts_chart
from barograph.charts.projection import projection
from barograph.report import figures
from barograph.report.classes import largest_classes
from barograph.report.coverage import band_coverage
from barograph.report.scale import RunsAtScale, extent, runs_by_scale
from barograph.views import queries
from barograph.views.advice import sentences
from barograph.views.context import ViewContext
from barograph.views.jobs import names
from barograph.views.log import Row, limits
from barograph.views.refusal import NothingKnown, similar
from barograph.views.words import listed, param_map, plural, share, span, utc
from barograph_modeler.forecasts.scoreboard import ForecastScore
from barograph_modeler.forecasts.works import FOUND, WORK

REACH: Final = 2
"""Ratio of the ranks to predict for, where none are given, to the most that were run."""
FORECASTS: Final = 120
"""Predictions drawn, the newest."""


def view(
    context: ViewContext, app: str, cluster: str | None, params: Mapping[str, str], ranks: int | None, since: float
) -> dict[str, Any]:
    """The values of the template. params: those of the log choose the runs, those that were recognised the prediction.
    ranks: to predict for, by default REACH times the largest scale. Raises NothingKnown.

    `answer`: the modeler's, None where it gave none: `error` says why. `scores`: of past predictions, by ranks.
    """
    every = context.rows(queries.ended_runs(app, cluster, since))
    if not every:
        near = similar(app, (row["name"] for row in context.rows(names("app")) if row["name"] != app))
        raise NothingKnown(f"no finished run of {app!r} is in the log{' since then' if since else ''}{near}")
    clusters = sorted({run["cluster"] for run in every})
    if len(clusters) > 1:
        raise NothingKnown(f"{app} has run on {', '.join(clusters)}, expected --cluster with one of them")
    recognised = {name: value for name, value in params.items() if name == WORK or FOUND.fullmatch(name)}
    text, others = _select(every, {name: value for name, value in params.items() if name not in recognised})
    selected = [run for run in every if run["params"] == text]
    runs = queries.ProblemRuns(app, clusters[0], text, since, selected)
    bands = context.rows(queries.bands({run["workload"] for run in selected}))
    scales = runs_by_scale(selected, {row["workload"]: row for row in bands if row["kind"] == "runtime"})
    where, largest = {"app": app, "cluster": runs.cluster, "curve": 1}, max(scale.ranks for scale in scales)
    if ranks or params:
        asked = {**param_map(text), **recognised}
        answer, error = context.predict_some(asked, ranks=ranks or REACH * largest, **where)
    else:
        answer, error = context.project(param_map(text), largest, REACH, **where)
    classes = largest_classes(context, runs, {scale.workload: scale.ranks for scale in scales}, bands)
    fitted = [one for one in classes if one.verdict is not None]
    forecasts = context.rows(runs.forecasts())
    drawn = forecasts[-FORECASTS:]
    return {
        "title": f"{app} on {runs.cluster}",
        "params": listed(param_map(text)),
        "other_params": others,
        "summary": list(_summary(selected, scales)),
        "advice": sentences(answer) if answer else [],
        "answer": answer,
        "error": error,
        "scales": scales,
        "has_works": any(scale.work for scale in scales),
        "classes": classes,
        "fitted": fitted,
        "drawn": len(drawn),
        "scores": _scored(forecasts),
        "coverage": band_coverage(context.modeler.urls, [scale.workload for scale in scales]),
        "alarms": context.rows(runs.alarms()),
        "charts": {
            "runtimes": figures.runtimes(scales),
            "projection": projection(answer, speedup=True) if answer and answer["refusal"] is None else None,
            "parts": parts_chart(answer) if answer and answer["refusal"] is None else None,
            "intervals": figures.intervals(classes[0], scales) if classes else None,
            "quantiles": figures.quantiles(fitted) if fitted else None,
            "forecasts": figures.forecasts(drawn) if drawn else None,
        },
    }


def _select(runs: Sequence[Row], params: Mapping[str, str]) -> tuple[str, int]:
    """The text of the parameters in the log with the most runs, of those that agree with `params`, and the number of
    other sets in the log.

    Raises NothingKnown.
    """
    counts = Counter(run["params"] for run in runs)
    for text, _ in counts.most_common():
        if params.items() <= param_map(text).items():
            return text, len(counts) - 1
    known = "; ".join(sorted(listed(param_map(text), " ") or "no parameters" for text in counts)[:5])
    raise NothingKnown(f"no run with {listed(params, ' ')} in that time, expected parameters such as: {known}")


def _scored(forecasts: Sequence[Row]) -> dict[int, ForecastScore]:
    """Scores by number of ranks, ascending."""
    scores: dict[int, ForecastScore] = {}
    for row in sorted(forecasts, key=lambda row: int(row["ranks"])):
        score = scores.setdefault(row["ranks"], ForecastScore())
        score.results[row["result"]] += 1
        if row["result"] in ("inside", "outside"):
            score.errors.append(abs(row["relative_error"]))
    return scores


def _summary(runs: Sequence[Row], scales: Sequence[RunsAtScale]) -> Iterator[str]:
    healthy = sum(one.healthy.size for one in scales)
    alarmed = sum(one.alarmed.size for one in scales)
    failed = sum(one.failed for one in scales)
    since, until = runs[0]["ended_at"], runs[-1]["ended_at"]
    when = f" from {utc(since)} to {utc(until)}" if since > 0 else ""
    yield (
        f"{plural(len(runs), 'run')}{when} {extent(scales)}:"
        f" {healthy:,} healthy, {alarmed:,} with an alarm, {failed:,} that did not end with status 0."
    )
    banded = [(scale.name, scale.band) for scale in scales if scale.band is not None]
    if not banded:
        yield "No limits of runtimes yet: they need a healthy run."
        return
    # The band of a single run is an assumption.
    repeated = [one for one in banded if one[1]["samples"] > 1]
    widest = max(repeated, key=lambda one: _width(one[1]), default=None)
    if widest is not None:
        yield f"It varies most on {widest[0]}: {_band_words(widest[1])}"
    if banded[-1] is not widest:
        yield f"On {banded[-1][0]}, the largest scale with a band, {_band_words(banded[-1][1])}"


def _band_words(band: Row) -> str:
    lower, expected, upper = map(span, limits(band))
    return (
        f"95 of 100 healthy runs take {lower} to {upper}, half of them up to {expected};"
        f" the upper limit is {share(_width(band) - 1)} above the lower."
    )


def _width(band: Row) -> float:
    return float(band["upper_seconds"] / band["lower_seconds"])
