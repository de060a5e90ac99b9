"""Answers to questions about the lengths of intervals, as plain JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barograph_modeler.forecasts.library import Published
from barograph_modeler.forecasts.parts.slowest import slowest_rank
from barograph_modeler.maxima.band import LEVEL, minimum_samples
from barograph_modeler.maxima.interval_forecast import forecast_interval
from barograph_modeler.serving.completion import similar_params
from barograph_modeler.serving.interval_history import IntervalClass, IntervalHistory
from barograph_modeler.serving.question import Question

TREND: Final = "The logarithm of the length of intervals is linear in that of the ranks."
PRIOR: Final = "Where intervals of one scale are known, they grow as those of collectives in general do."

MAX_TESTED_RATIO: Final = 4
"""Of ranks to those at the largest scale: back-tests of the trend reach so far."""


def answer_of_intervals(known: Published, history: IntervalHistory, question: Question) -> dict[str, Any]:
    """The classes with most time and their intervals, in seconds, or a refusal.

    share: of the time in intervals at the scale in question, or at the largest if that has not run. method: of the
    band; "trend" at a scale that has not run. from_ranks: scales whose intervals it rests on. emma: whether the
    expected maximum is that of a fitted GEV, else it is a mean of the values. slowest: the work of the slowest rank
    over that of a mean one, by `slowest_rank`; None where that is not known.
    """
    rows = [row for one in history.classes if (row := _row(one, history, question.nodes)) is not None]
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


def _row(one: IntervalClass, history: IntervalHistory, nodes: int | None) -> dict[str, Any] | None:
    found = forecast_interval(one.samples, history.ranks)
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
        "emma": found.emma,
        "slowest": None if slowest is None else slowest._asdict(),
    }


def _conditions(history: IntervalHistory, rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """What is assumed of a scale that has not run."""
    yield TREND
    if any(len(row["from_ranks"]) == 1 for row in rows):
        yield PRIOR
    ratio = history.ranks / max(max(row["from_ranks"]) for row in rows)
    if ratio > MAX_TESTED_RATIO:
        times = f"{float(f'{ratio:.3g}'):,.15g}"
        yield f"It holds for {times} times the ranks, where it was tested for {MAX_TESTED_RATIO} times."
