"""Answers to questions about the lengths of intervals, as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barograph_modeler.forecasts.library import Published
from barograph_modeler.forecasts.parts.slowest import slowest_rank
from barograph_modeler.maxima.band import LEVEL, minimum_samples
from barograph_modeler.maxima.interval_forecast import forecast_interval
from barograph_modeler.maxima.trend import UNKNOWN, Slope
from barograph_modeler.scaling.answer import Prediction
from barograph_modeler.serving.completion import similar_params
from barograph_modeler.serving.interval_history import IntervalClass, IntervalHistory
from barograph_modeler.serving.question import Question

TREND: Final = "The logarithm of the length of intervals is linear in that of the ranks."
PRIORS: Final = {
    "split": "Where intervals of one scale are known, ranks divide their work and collectives grow as in general.",
    "runtime": "Where intervals of one scale are known, they change with the ranks about as the runtime does.",
    "none": "Where intervals of one scale are known, it is unknown whether they get shorter or longer.",
}
"""By what gives the slope of classes."""
CLASS_SPREAD: Final = 0.4
"""Spread of the slopes of classes about that of the runtime, in doublings of length per doubling of ranks."""
DIVIDED: Final = -1.0
"""Slope of work of one size, which more ranks divide."""

Z95: Final = 1.96
"""Standard deviations of a normal distribution from its median to its limits."""
MAX_TESTED_RATIO: Final = 4
"""Of ranks to those at the largest scale: back-tests of the trend reach so far."""


def answer_of_intervals(known: Published, history: IntervalHistory, question: Question) -> dict[str, Any]:
    """The classes with most time and their intervals, in seconds, or a refusal.

    share: of the time in intervals at the scale in question, or at the largest if that has not run. method: of the
    band; "trend" at a scale that has not run. prior: of that, what gives it its slope: the split of the class into work
    and communication, the curve of the runtime, or nothing. from_ranks: scales whose intervals it rests on. emma:
    whether the expected maximum is that of a fitted GEV, else it is a mean of the values. slowest: the work of the
    slowest rank over that of a mean one, by `slowest_rank`; None where that is not known.
    """
    runtime = _runtime_slope(known, history)
    rows = [row for one in history.classes if (row := _row(one, history, question.nodes, runtime)) is not None]
    refusal = history.refusal
    if refusal is None and not rows:
        at = max((ranks for one in history.classes for ranks in one.samples), default=history.ranks)
        refusal = f"no class has {minimum_samples(LEVEL)} intervals on {at:,} ranks, which a band needs"
    is_trend = any(row["method"] == "trend" for row in rows)
    return {
        "cluster": known.application.cluster,
        "app": known.application.app,
        "params": known.space.relevant(question.params),
        "ranks": question.ranks,
        "level": LEVEL,
        "refusal": refusal,
        "intervals": rows,
        "conditions": [*(_conditions(history, rows) if is_trend else ()), *_growth(history)],
        "others": [] if refusal is None else similar_params(known, known.space.relevant(question.params)),
    }


def _growth(history: IntervalHistory) -> Iterable[str]:
    if history.size:
        yield f"The size grows with the ranks as it did: {history.size}."


def _runtime_slope(known: Published, history: IntervalHistory) -> Slope | None:
    """The slope of the runtime from the largest scale with intervals on; None where its curve is unknown."""
    largest = max((ranks for one in history.classes for ranks in one.samples), default=history.ranks)
    if history.ranks <= largest:
        return None
    name, size = history.problem.name, history.problem.size
    here, there = (known.predictor.predict(name, ranks, None, size) for ranks in (largest, history.ranks))
    if not (isinstance(here, Prediction) and isinstance(there, Prediction)):
        return None
    distance = math.log2(history.ranks / largest)
    reach = math.log2(there.upper_seconds / there.lower_seconds) / (2 * Z95)
    mean = math.log2(there.expected_seconds / here.expected_seconds) / distance
    return Slope(mean, math.hypot(CLASS_SPREAD, reach / distance))


def _slope(one: IntervalClass, history: IntervalHistory, runtime: Slope | None) -> tuple[str, Slope]:
    """The prior of the slope of a class, and what gives it, a key of PRIORS."""
    phases = [run.phases()[one.class_id] for run in history.runs if one.class_id in run.classes]
    if phases and history.ranks > (largest := max(one.samples)):
        measured = phases[-1]
        work = measured.slowest / (measured.slowest + measured.exchange + measured.collective)
        slope = runtime.mean if runtime is not None and history.size else DIVIDED
        return "split", Slope.of_split(work, slope, math.log2(history.ranks / largest))
    return ("none", UNKNOWN) if runtime is None else ("runtime", runtime)


def _row(
    one: IntervalClass, history: IntervalHistory, nodes: int | None, runtime: Slope | None
) -> dict[str, Any] | None:
    prior, slope = _slope(one, history, runtime)
    found = forecast_interval(one.samples, history.ranks, slope)
    if found is None:
        return None
    slowest = slowest_rank(history.runs, one.class_id, history.ranks, nodes)
    return {
        "class": f"{one.class_id:016x}",
        "share": one.share,
        "from_ranks": sorted(one.samples),
        "lower_seconds": found.band.lower,
        "expected_seconds": found.band.expected,
        "upper_seconds": found.band.upper,
        "expected_maximum_seconds": found.expected_maximum,
        "method": found.band.method,
        "prior": prior if found.band.method == "trend" else None,
        "emma": found.emma,
        "slowest": None if slowest is None else slowest._asdict(),
    }


def _conditions(history: IntervalHistory, rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """What is assumed of a scale that has not run."""
    yield TREND
    yield from sorted({PRIORS[row["prior"]] for row in rows if len(row["from_ranks"]) == 1})
    ratio = history.ranks / max(max(row["from_ranks"]) for row in rows)
    if ratio > MAX_TESTED_RATIO:
        times = f"{float(f'{ratio:.3g}'):,.15g}"
        yield f"It holds for {times} times the ranks, where it was tested for {MAX_TESTED_RATIO} times."
