"""An application: how its runtimes spread by scale, what they scale to, and how well that was foretold before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from barograph.commands.predict import ModelerUnreachable, PredictionRefused
from barograph.site import queries
from barograph.site.desk import NotThere, RequestContext
from barograph.site.figure import LEFT, RIGHT, TOP, Figure
from barograph.site.log import Row
from barograph.site.projection import chart
from barograph.site.scale import linear, ranks
from barograph.site.words import param_map, percent

FURTHER: Final = 4
"""The projection goes to so many times the largest scale that was run."""


def ticks(share: float) -> str:
    """A deviation beside an axis.

    >>> ticks(0.05), ticks(0.0)
    ('+5 %', '0 %')
    """
    return f"{100 * share:+.3g} %".replace("-", "\N{MINUS SIGN}") if abs(share) > 1e-9 else "0 %"


@dataclass(frozen=True)
class PredictionAccuracy:
    """What became of predictions. `inside` is the share of judged runs that ended within their interval."""

    counts: dict[str, int]
    median_error: float | None
    inside: float | None
    chart: Markup | None
    text: str
    rows: list[Row]


@dataclass(frozen=True)
class ApplicationView:
    """Everything that the page of an application shows. `said` is the modeler's answer, None where it gave none."""

    cluster: str
    app: str
    problems: list[Row]
    chosen: str
    scales: list[Row]
    spread: Markup | None
    said: dict[str, Any] | None
    projection: Markup | None
    refusal: str
    accuracy: PredictionAccuracy


def view(desk: RequestContext, cluster: str, app: str, params: str | None) -> ApplicationView:
    """The page. params: the problem as the log writes it, None for the most often run. Raises NotThere, Away."""
    problems = desk.ask(queries.problems(cluster, app, desk.user), fresh=10.0)
    if not problems:
        raise NotThere(f"There is no finished run of {app} on {cluster} in the log that you may see.")
    chosen = params if params is not None else problems[0]["params"]
    scales = desk.ask(queries.scales(cluster, app, chosen, desk.user), fresh=10.0)
    said, refusal = _ask(desk, cluster, app, chosen, scales)
    return ApplicationView(
        cluster=cluster,
        app=app,
        problems=problems,
        chosen=chosen,
        scales=scales,
        spread=_spread(app, scales),
        said=said,
        projection=chart(said, f"Runtime of {app} over ranks") if said and said.get("curve") else None,
        refusal=refusal,
        accuracy=_accuracy(desk.ask(queries.outcomes(cluster, app, desk.user), fresh=10.0)),
    )


def _ask(
    desk: RequestContext, cluster: str, app: str, params: str, scales: list[Row]
) -> tuple[dict[str, Any] | None, str]:
    if not scales:
        return None, "No run with these parameters has ended well."
    fields = {"cluster": cluster, "app": app, "ranks": FURTHER * scales[-1]["ranks"], "curve": 1}
    fields |= {f"param.{name}": value for name, value in param_map(params).items()}
    try:
        said = desk.predict(fields)
    except (ModelerUnreachable, PredictionRefused) as error:
        return None, str(error)
    return said, said["refusal"] or ""


def _spread(app: str, scales: list[Row]) -> Markup | None:
    """Runtimes over their median, by scale: what varies from run to run."""
    several = [row for row in scales if row["runs"] > 1]
    if not several:
        return None
    lows = [row["low"] / row["middle"] - 1 for row in several]
    highs = [row["high"] / row["middle"] - 1 for row in several]
    reach = max(0.02, 1.15 * max(*highs, -min(lows)))
    y = linear(-reach, reach, 242, TOP, ticks, 6)
    figure = Figure(ranks([row["ranks"] for row in several], LEFT, RIGHT), y, "ranks", height=280)
    figure.level(0.0, "expected")
    for row, low, high in zip(several, lows, highs, strict=True):
        figure.bar(row["ranks"], low, high, "whisker")
    figure.dots(((row["ranks"], 0.0) for row in several), "observed")
    widest = max(zip(several, lows, highs, strict=True), key=lambda one: one[2] - one[1])
    text = (
        f"Nine of ten runs lie within the bars around the median of their scale. They are widest on"
        f" {widest[0]['ranks']:,} ranks: {percent(widest[1], signed=True)} to {percent(widest[2], signed=True)}."
    )
    return figure.draw(f"Variability of {app} by scale", text)


def _accuracy(rows: list[Row]) -> PredictionAccuracy:
    counts = {name: sum(row["result"] == name for row in rows) for name in ("inside", "outside", "withheld", "failed")}
    judged = [row for row in rows if row["result"] in ("inside", "outside")]
    if not judged:
        return PredictionAccuracy(
            counts, None, None, None, "No run has ended yet for which a prediction had been written.", rows
        )
    errors = sorted(abs(row["relative_error"]) for row in judged)
    median, inside = errors[len(errors) // 2], counts["inside"] / len(judged)
    text = (
        f"Of the last {len(judged):,} runs that were predicted before they ended, {percent(inside)} ended within their"
        f" 95 % interval; half of the predictions were off by less than {percent(median)}."
    )
    return PredictionAccuracy(counts, median, inside, _errors(judged, text) if len(judged) > 1 else None, text, rows)


def _errors(judged: list[Row], text: str) -> Markup:
    in_order = judged[::-1]
    reach = max(0.02, 1.15 * max(abs(row["relative_error"]) for row in judged))
    y = linear(-reach, reach, 242, TOP, ticks, 6)
    x = linear(0.5, len(in_order) + 0.5, LEFT, RIGHT, lambda at: f"{at:.0f}", min(8, len(in_order)))
    figure = Figure(x, y, "runs, the latest at the right", height=280)
    figure.level(0.0, "expected")
    for kind in ("inside", "outside"):
        points = [(i, row["relative_error"]) for i, row in enumerate(in_order, 1) if row["result"] == kind]
        figure.dots(points, "observed" if kind == "inside" else "missed")
    return figure.draw("Error of past predictions", text)
