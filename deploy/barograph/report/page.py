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
from barograph.views.job import JobSummary
from barograph.views.log import Row, limits
from barograph.views.templates import environment
from barograph.views.words import listed, plural, share, span, stop, utc

DRAWN: Final = 3
"""Classes of a job drawn over time; the table has them all."""
VISIBLE: Final = 0.01
"""Least share of the time of a class that is drawn."""
FORECASTS: Final = 120
"""Predictions drawn, the newest."""
TYPES: Final = {"gumbel": "I (Gumbel)", "frechet": "II (Fréchet)", "weibull": "III (Weibull)"}
STYLE: Final = Markup(files("barograph.charts").joinpath("static/chart.css").read_text(encoding="utf-8"))


def of_application(known: ApplicationReport) -> str:
    """The page about an application."""
    forecasts = known.forecasts[-FORECASTS:]
    fitted = [one for one in known.classes if one.verdict is not None]
    answer = known.said
    return _render(
        "application.html",
        known=known,
        title=f"{known.app} on {known.cluster}",
        params=listed(known.params),
        summary=list(_summary(known)),
        advice=sentences(answer) if answer else [],
        fitted=fitted,
        runtimes=figures.runtimes(known.scales),
        intervals=figures.intervals(known.classes[0], known.scales) if known.classes else None,
        quantiles=figures.quantiles(fitted) if fitted else None,
        shapes=figures.shapes(fitted) if any(len(one.shapes) > 1 for one in fitted) else None,
        projection=projection(answer, speedup=True) if answer and answer["refusal"] is None else None,
        forecasts=figures.forecasts(forecasts) if forecasts else None,
        drawn=len(forecasts),
    )


def of_job(story: JobReport) -> str:
    """The page about a job."""
    job, drawn = story.job, [phase for phase in story.phases[:DRAWN] if phase.share >= VISIBLE]
    return _render(
        "job.html",
        story=story,
        job=job,
        title=f"Job {job.row['job']}",
        summary=list(_told(job)),
        timeline=figures.phases(job, drawn) if drawn else None,
        drawn=drawn,
        nodes=figures.nodes(story.nodes, job.members) if story.nodes else None,
    )


def _summary(known: ApplicationReport) -> Iterator[str]:
    healthy, alarmed, failed = (
        sum(counts)
        for counts in zip(*((one.healthy.size, one.alarmed.size, one.failed) for one in known.scales), strict=True)
    )
    when = f" from {utc(known.since)} to {utc(known.until)}" if known.since > 0 else ""
    yield (
        f"{plural(healthy + alarmed + failed, 'run')}{when} at {plural(len(known.scales), 'scale')}:"
        f" {healthy:,} healthy, {alarmed:,} with an alarm, {failed:,} that did not end with status 0."
    )
    banded = [(scale.name, scale.band) for scale in known.scales if scale.band is not None]
    if not banded:
        yield "No band for a runtime yet: that takes three healthy runs at one scale."
        return
    widest = max(banded, key=lambda one: _width(one[1]))
    yield f"It varies most on {widest[0]}: {_band_words(widest[1])}"
    if banded[-1] is not widest:
        yield f"On {banded[-1][0]}, the most with a band, {_band_words(banded[-1][1])}"


def _band_words(band: Row) -> str:
    lower, expected, upper = map(span, limits(band))
    return (
        f"95 of 100 healthy runs take {lower} to {upper}, half of them up to {expected};"
        f" the upper limit is {share(_width(band) - 1)} above the lower."
    )


def _width(band: Row) -> float:
    return float(band["upper_seconds"] / band["lower_seconds"])


def _told(job: JobSummary) -> Iterator[str]:
    row = job.row
    judged = row["sentence"] or "nobody has judged this job yet"
    yield stop(f"{judged[:1].upper()}{judged[1:]}")
    if not job.ended:
        yield "It has not ended, as far as the log knows."
        return
    took, status = row["runtime_seconds"], row["exit_status"]
    if job.prediction is not None:
        lower, expected, upper = job.prediction
        where = "within" if lower <= took <= upper else "outside of"
        yield (
            f"It took {span(took)}, {where} the {span(lower)} to {span(upper)} that were predicted while it ran;"
            f" expected were {span(expected)}."
        )
    else:
        yield f"It took {span(took)}. Nothing was predicted while it ran."
    if status != 0:
        yield "How it ended is not known." if status < 0 else f"It ended with status {status}."
    if row["dropped"]:
        yield f"Of {plural(row['intervals'], 'interval')}, {row['dropped']:,} never reached the log."


def _render(template: str, **values: Any) -> str:
    templates = environment("barograph.report")
    templates.globals |= {"types": TYPES, "site_of": _site_of, "finite": math.isfinite, "key": key, "style": STYLE}
    return templates.get_template(template).render(now=datetime.now(UTC).timestamp(), **values)


def _site_of(text: str) -> Markup:
    """The innermost function of a call path, without its offset; lines may break between names."""
    return escape(text.partition(" < ")[0].rpartition("+0x")[0] or text).replace("::", Markup("::<wbr>"))
