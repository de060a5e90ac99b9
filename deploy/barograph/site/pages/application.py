"""An application: its projection, the variability of its runtimes by scale, and the accuracy of past predictions."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from barograph.charts.axis import Axis, linear, ranks
from barograph.charts.figure import LEFT, RIGHT, TOP, Figure, draw
from barograph.charts.projection import projection
from barograph.views import queries
from barograph.views.collectors.joint_query import JointQuery
from barograph.views.context import ViewContext
from barograph.views.log import Row
from barograph.views.refusal import NothingKnown
from barograph.views.words import deviation, param_map, percent, work_label

REACH: Final = 4
"""Ratio of the largest projected number of ranks to the largest that was run."""
MAX_AGE: Final = 10.0
"""Seconds for which a cached result is used."""


def view(context: ViewContext, cluster: str, app: str, params: str | None) -> dict[str, Any]:
    """The page. `answer`: the modeler's answer, None where it gave none.

    params: JSON as in the log, None for those run most often. Raises NothingKnown.
    """

    def rows(asked: JointQuery) -> list[Row]:
        return context.rows(asked, max_age=MAX_AGE)

    problems = rows(queries.problems(cluster, app, context.user))
    if not problems:
        raise NothingKnown(f"There is no finished run of {app} on {cluster} in the log that you may see.")
    chosen = params if params is not None else problems[0]["params"]
    scales = [
        one | {"work": work_label(one["workload"])} for one in rows(queries.scales(cluster, app, chosen, context.user))
    ]
    answer, error = None, "No run with these parameters has succeeded."
    if scales:
        most = scales[-1]["ranks"]
        answer, error = context.project(param_map(chosen), most, REACH, cluster=cluster, app=app, curve=1)
    changes = queries.runtime_changes(f"{cluster}/{app}@", every_group=True)
    return {
        "cluster": cluster,
        "app": app,
        "problems": problems,
        "chosen": chosen,
        "scales": scales,
        "spread": _spread(app, scales),
        "answer": answer,
        "projection": projection(answer) if answer and "curve" in answer else None,
        "refusal": answer["refusal"] if answer else error,
        # What was said of all runs: for those who see all.
        "changes": rows(changes) if context.user is None else [],
        "accuracy": _accuracy(rows(queries.outcomes(cluster, app, context.user))),
    }


def _spread(app: str, scales: list[Row]) -> Markup | None:
    """Quantiles of runtimes relative to their median, by scale."""
    several = [  # of each group of like work
        (row["ranks"], row["low"] / row["middle"] - 1, row["high"] / row["middle"] - 1)
        for row in scales
        if row["runs"] > 1 and row["ranks"] > 0  # 0: no MPI program
    ]
    if not several:
        return None
    x = ranks([at for at, _, _ in several], LEFT, RIGHT)
    figure = _deviations(x, "ranks", [end for _, *ends in several for end in ends], "runtime over its median")
    for at, low, high in several:
        figure.error_bar(at, low, high, "whisker")
    figure.dots(((at, 0.0) for at, _, _ in several), "observed")
    at, low, high = max(several, key=lambda one: one[2] - one[1])
    text = (
        f"Nine of ten runs lie within the bars around the median of their scale. They are widest on"
        f" {at:,} ranks: {percent(low, signed=True)} to {percent(high, signed=True)}."
    )
    return draw(f"Variability of {app} by scale. {text}", figure)


def _accuracy(rows: list[Row]) -> dict[str, Any]:
    """Outcomes of predictions: counts by result, a chart of the errors, and a sentence."""
    counts = {name: sum(row["result"] == name for row in rows) for name in ("inside", "outside", "withheld", "failed")}
    judged = [row for row in rows if row["result"] in ("inside", "outside")]
    text = "No run has ended yet for which a prediction had been written."
    if judged:
        errors = sorted(abs(row["relative_error"]) for row in judged)
        text = (
            f"Of the last {len(judged):,} runs that were predicted before they ended,"
            f" {percent(counts['inside'] / len(judged))} ended within their 95 % interval; half of the predictions were"
            f" off by less than {percent(errors[len(errors) // 2])}."
        )
    return {"counts": counts, "chart": _errors(judged, text) if len(judged) > 1 else None, "text": text, "rows": rows}


def _errors(judged: list[Row], text: str) -> Markup:
    x = linear(0.5, len(judged) + 0.5, LEFT, RIGHT, lambda at: f"{at:.0f}", min(8, len(judged)))
    figure = _deviations(
        x, "runs, the latest at the right", [row["relative_error"] for row in judged], "prediction error"
    )
    for result, kind in (("inside", "observed"), ("outside", "missed")):
        points = [(i, row["relative_error"]) for i, row in enumerate(judged[::-1], 1) if row["result"] == result]
        figure.dots(points, kind)
    return draw(f"Error of past predictions. {text}", figure)


def _deviations(x: Axis, below: str, values: list[float], above: str) -> Figure:
    """An empty chart for values around 0, with a line at 0."""
    reach = max(0.02, 1.15 * max(map(abs, values)))
    figure = Figure(x, linear(-reach, reach, 242, TOP, deviation, 6), above, below)
    figure.level(0.0, "expected")
    return figure
