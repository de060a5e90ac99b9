"""The pages: what was gathered, put into templates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from barograph.report import application_figures, job_figures
from barograph.report.application import ApplicationReport
from barograph.report.drawing import svg
from barograph.report.job import JobReport
from barograph.views.advice import sentences
from barograph.views.job import JobSummary
from barograph.views.log import Row, limits
from barograph.views.projection import draw
from barograph.views.templates import environment
from barograph.views.words import listed, plural, share, span, stop, utc

DRAWN: Final = 3
"""Classes of a job drawn over time; the table has them all."""
VISIBLE: Final = 0.01
"""Share of the time from which on a class is drawn."""
FORECASTS: Final = 120
"""Predictions drawn, the newest."""
TYPES: Final = {"gumbel": "I (Gumbel)", "frechet": "II (Fréchet)", "weibull": "III (Weibull)"}


def of_application(known: ApplicationReport) -> str:
    """The page about an application."""
    fitted = [one for one in known.classes if one.verdict is not None]
    forecasts = known.forecasts[-FORECASTS:]
    curve = [known.said] if known.said is not None and known.said["refusal"] is None else []
    return _render(
        "application.html",
        known=known,
        title=f"{known.app} on {known.cluster}",
        params=listed(known.params),
        summary=list(_summary(known)),
        advice=sentences(known.said) if known.said is not None else [],
        fitted=fitted,
        runtimes=svg(application_figures.runtimes(known.scales), "Runtimes by number of ranks, with their bands"),
        intervals=_drawn(
            known.classes,
            lambda classes: application_figures.intervals(classes[0], known.scales),
            "Intervals of class A by number of ranks, with their bands",
        ),
        fits=_drawn(fitted, application_figures.fits, "Observed over fitted quantiles, class by class"),
        shapes=_drawn(
            fitted if any(len(one.shapes) > 1 for one in fitted) else [],
            application_figures.shapes,
            "Fitted shape of each class over time",
        ),
        projection=_drawn(
            curve,
            lambda said: draw(said[0]),
            "Runtime and speedup over ranks, with their 95 % interval and the runs behind it",
        ),
        forecasts=_drawn(forecasts, application_figures.forecasts, "Runtimes over what was predicted while they ran"),
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
        timeline=_drawn(
            drawn, lambda phases: job_figures.timeline(job, phases), "Intervals over time, over their bands"
        ),
        drawn=drawn,
        nodes=_drawn(story.nodes, lambda rows: job_figures.nodes(rows, job.members), "Work and waiting of each node"),
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


def _drawn(what: Sequence[Any], figure: Callable[[Sequence[Any]], Figure], label: str) -> Markup | None:
    """A figure of these things, or None where there is none."""
    return svg(figure(what), label) if what else None


def _render(template: str, **values: Any) -> str:
    templates = environment("barograph.report")
    templates.globals |= {"types": TYPES, "site_of": _site_of, "finite": math.isfinite}
    return templates.get_template(template).render(now=datetime.now(UTC).timestamp(), **values)


def _site_of(text: str) -> Markup:
    """The innermost function of a call path, without its offset; lines may break between names."""
    return escape(text.partition(" < ")[0].rpartition("+0x")[0] or text).replace("::", Markup("::<wbr>"))
