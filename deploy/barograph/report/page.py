"""The pages: what was gathered, put into templates. Whatever comes from the log is escaped there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from barograph.report import application_figures, job_figures
from barograph.report.application import ApplicationReport
from barograph.report.drawing import svg
from barograph.report.job import JobReport
from barograph.views.advice import percent, plural, sentences, span
from barograph.views.projection import draw
from barograph_modeler.maxima.trust import Shape

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
    return _render(
        "application.html",
        known=known,
        title=f"{known.app} on {known.cluster}",
        params=", ".join(f"{name}={value}" for name, value in sorted(known.params.items())),
        summary=list(_summary(known)),
        advice=sentences(known.said) if known.said is not None else [],
        fitted=fitted,
        runtimes=svg(application_figures.runtimes(known.scales), "Runtimes by number of ranks, with their bands"),
        intervals=_drawn(
            known.classes,
            lambda: application_figures.intervals(known.classes[0], known.scales),
            "Intervals of class A by number of ranks, with their bands",
        ),
        fits=_drawn(fitted, lambda: application_figures.fits(fitted), "Observed over fitted quantiles, class by class"),
        shapes=_drawn(
            [row for one in fitted for row in one.shapes[1:]],
            lambda: application_figures.shapes(fitted),
            "Fitted shape of each class over time",
        ),
        projection=_projection(known),
        forecasts=_drawn(
            known.forecasts,
            lambda: application_figures.forecasts(known.forecasts[-FORECASTS:]),
            "Runtimes over what was predicted while they ran",
        ),
        drawn=min(FORECASTS, len(known.forecasts)),
    )


def of_job(story: JobReport) -> str:
    """The page about a job."""
    drawn = [phase for phase in story.phases[:DRAWN] if phase.share >= VISIBLE]
    return _render(
        "job.html",
        story=story,
        title=f"Job {story.job['job']}",
        summary=list(_told(story)),
        timeline=_drawn(drawn, lambda: job_figures.timeline(story, drawn), "Intervals over time, over their bands"),
        drawn=drawn,
        nodes=_drawn(story.nodes, lambda: job_figures.nodes(story), "Work and waiting of each node"),
    )


def _summary(known: ApplicationReport) -> Iterator[str]:
    healthy, alarmed, failed = (
        sum(scale.healthy.size for scale in known.scales),
        sum(scale.alarmed.size for scale in known.scales),
        sum(scale.failed for scale in known.scales),
    )
    when = f" from {_date(known.since)} to {_date(known.until)}" if known.since > 0 else ""
    yield (
        f"{plural(healthy + alarmed + failed, 'run')}{when} at {plural(len(known.scales), 'scale')}:"
        f" {healthy:,} healthy, {alarmed:,} with an alarm, {failed:,} that did not end with status 0."
    )
    banded = [scale for scale in known.scales if scale.band is not None]
    widest = max(banded, key=lambda scale: _width(scale.band), default=None)
    if widest is not None:
        yield f"It varies most on {widest.name}: {_band_words(widest.band)}"
    if banded and banded[-1] is not widest:
        yield f"On {banded[-1].name}, the most with a band, {_band_words(banded[-1].band)}"
    if not banded:
        yield "No band for a runtime yet: that takes three healthy runs at one scale."


def _band_words(band: Any) -> str:
    lower, expected, upper = (band[f"{limit}_seconds"] for limit in ("lower", "expected", "upper"))
    return (
        f"95 of 100 healthy runs take {span(lower)} to {span(upper)}, half of them up to {span(expected)};"
        f" the upper limit is {percent(upper / lower - 1)} above the lower."
    )


def _width(band: Any) -> float:
    return float(band["upper_seconds"] / band["lower_seconds"])


def _told(story: JobReport) -> Iterator[str]:
    judged = str(story.score["sentence"]).rstrip(".") if story.score else "nobody has judged this job yet"
    yield f"{judged[:1].upper()}{judged[1:]}."
    if story.run is None:
        yield "It has not ended, as far as the log knows."
    elif story.prediction is not None:
        lower, expected, upper = (story.prediction[f"{limit}_seconds"] for limit in ("lower", "expected", "upper"))
        took = story.run["runtime_seconds"]
        where = "within" if lower <= took <= upper else "outside of"
        yield (
            f"It took {span(took)}, {where} the {span(lower)} to {span(upper)} that were predicted while it ran;"
            f" expected were {span(expected)}."
        )
    else:
        yield f"It took {span(story.run['runtime_seconds'])}. Nothing was predicted while it ran."
    if story.run is not None and story.run["exit_status"] != 0:
        status = story.run["exit_status"]
        yield "How it ended is not known." if status < 0 else f"It ended with status {status}."
    if story.run is not None and story.run["dropped"]:
        yield f"Of {plural(story.run['intervals'], 'interval')}, {story.run['dropped']:,} never reached the log."


def _projection(known: ApplicationReport) -> Markup | None:
    if known.said is None or known.said["refusal"] is not None:
        return None
    label = "Runtime and speedup over ranks, with their 95 % interval and the runs behind it"
    return svg(draw(known.said), label)


def _drawn(what: Sequence[Any], figure: Any, label: str) -> Markup | None:
    """The figure, or None where there is nothing to draw."""
    return svg(figure(), label) if what else None


def _render(template: str, **values: Any) -> str:
    environment = Environment(
        loader=PackageLoader("barograph.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "date": _date,
        "span": span,
        "percent": percent,
        "plural": plural,
        "milliseconds": _milliseconds,
    }
    environment.globals |= {"type_of": _type_of, "site_of": _site_of, "finite": math.isfinite}
    return environment.get_template(template).render(now=datetime.now(UTC).timestamp(), **values)


def _type_of(shape: Shape) -> str:
    return TYPES[shape.type_name]


def _site_of(text: str) -> Markup:
    """The innermost function of a call path, without its offset; lines may break between names."""
    return escape(text.partition(" < ")[0].rpartition("+0x")[0] or text).replace("::", Markup("::<wbr>"))


def _date(at: float | None) -> str:
    if at is None or not math.isfinite(at) or at <= 0:
        return "-"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _milliseconds(seconds: float) -> str:
    if seconds < 1e-6:
        return "<0.001"
    return f"{1e3 * seconds:,.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"
