"""The pages: gathered facts rendered by templates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from markupsafe import Markup, escape

from barograph.charts.figure import key
from barograph.charts.projection import projection
from barograph.report import figures
from barograph.report.application import ApplicationReport
from barograph.report.job import JobReport
from barograph.views.advice import sentences
from barograph.views.log import Row, limits
from barograph.views.templates import environment
from barograph.views.words import listed, period, plural, share, span, utc

DRAWN: Final = 3
"""Classes of a job drawn over time; the table has them all."""
VISIBLE: Final = 0.01
"""Least share of the time of a class that is drawn."""
FORECASTS: Final = 120
"""Predictions drawn, the newest."""
TYPES: Final = {"gumbel": "I (Gumbel)", "frechet": "II (Fréchet)", "weibull": "III (Weibull)"}
STYLE: Final = Markup(files("barograph.charts").joinpath("static/chart.css").read_text(encoding="utf-8"))


def application_page(report: ApplicationReport) -> str:
    """The page about an application."""
    forecasts = report.forecasts[-FORECASTS:]
    fitted = [one for one in report.classes if one.verdict is not None]
    answer = report.answer
    return _render(
        "application.html",
        report=report,
        title=f"{report.app} on {report.cluster}",
        params=listed(report.params),
        summary=list(_application_summary(report)),
        advice=sentences(answer) if answer else [],
        fitted=fitted,
        runtimes=figures.runtimes(report.scales),
        intervals=figures.intervals(report.classes[0], report.scales) if report.classes else None,
        quantiles=figures.quantiles(fitted) if fitted else None,
        shapes=figures.shapes(fitted) if any(len(one.shapes) > 1 for one in fitted) else None,
        projection=projection(answer, speedup=True) if answer and answer["refusal"] is None else None,
        forecasts=figures.forecasts(forecasts) if forecasts else None,
        drawn=len(forecasts),
    )


def job_page(report: JobReport) -> str:
    """The page about a job."""
    job, drawn = report.job, [one for one in report.classes[:DRAWN] if one.share >= VISIBLE]
    return _render(
        "job.html",
        report=report,
        job=job,
        title=f"Job {job['job']}",
        summary=list(_job_summary(job)),
        timeline=figures.timeline(job, drawn) if drawn else None,
        drawn=drawn,
        nodes=figures.nodes(report.nodes, job["members"]) if report.nodes else None,
    )


def _application_summary(report: ApplicationReport) -> Iterator[str]:
    healthy = sum(one.healthy.size for one in report.scales)
    alarmed = sum(one.alarmed.size for one in report.scales)
    failed = sum(one.failed for one in report.scales)
    when = f" from {utc(report.since)} to {utc(report.until)}" if report.since > 0 else ""
    yield (
        f"{plural(healthy + alarmed + failed, 'run')}{when} at {plural(len(report.scales), 'scale')}:"
        f" {healthy:,} healthy, {alarmed:,} with an alarm, {failed:,} that did not end with status 0."
    )
    banded = [(scale.name, scale.band) for scale in report.scales if scale.band is not None]
    if not banded:
        yield "No band of runtimes yet: it needs three healthy runs at one scale."
        return
    widest = max(banded, key=lambda one: _width(one[1]))
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


def _job_summary(job: Row) -> Iterator[str]:
    verdict = job["sentence"] or "this job has not been judged yet"
    yield period(f"{verdict[:1].upper()}{verdict[1:]}")
    if job["ended_at"] is None:
        yield "The log has no end of it."
        return
    took, status = job["runtime_seconds"], job["exit_status"]
    if job["prediction"] is not None:
        lower, expected, upper = job["prediction"]
        where = "within" if lower <= took <= upper else "outside of"
        yield (
            f"It took {span(took)}, {where} the {span(lower)} to {span(upper)} that were predicted while it ran;"
            f" the median was {span(expected)}."
        )
    else:
        yield f"It took {span(took)}. Nothing was predicted while it ran."
    if status != 0:
        yield "Its exit status is unknown." if status < 0 else f"It ended with status {status}."
    if job["dropped"]:
        yield f"Of {plural(job['intervals'], 'interval')}, {job['dropped']:,} were dropped before the log."


def _render(template: str, **values: Any) -> str:
    templates = environment("barograph.report")
    templates.globals |= {"types": TYPES, "site_of": _site_of, "finite": math.isfinite, "key": key, "style": STYLE}
    return templates.get_template(template).render(now=datetime.now(UTC).timestamp(), **values)


def _site_of(text: str | None) -> Markup:
    """The innermost function of a call path without its offset, with line breaks allowed between names."""
    text = text or "unknown"
    return escape(text.partition(" < ")[0].rpartition("+0x")[0] or text).replace("::", Markup("::<wbr>"))
