"""Answers to questions about runtimes, as plain values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import numpy as np

from barograph_modeler.forecasts.history import Application, problem_name
from barograph_modeler.forecasts.library import Published, smallest_scale
from barograph_modeler.scaling.history import MOST_RANKS
from barograph_modeler.scaling.predictor import Prediction, Refusal
from barograph_modeler.serving.question import BadQuestion, Question

LEVEL: Final = 0.95
MIN_GAIN: Final = 1.25
"""Twice as many ranks pay where they make the run this many times as fast."""
POINTS: Final = 40
OBSERVED: Final = 2_000
OTHERS: Final = 5
_STEPS: Final = ((3600, 60), (6 * 3600, 300), (math.inf, 900))
"""Limits up to so many seconds are rounded up to so many."""

T = TypeVar("T")


class UnknownApplication(LookupError):
    """An unknown application. The text names it."""


def find_application(published: Mapping[Application, T], question: Question) -> tuple[Application, T]:
    """What is published of the application. Raises UnknownApplication, and BadQuestion where it is on several clusters."""
    if question.cluster:
        application = Application(question.cluster, question.app)
        if application not in published:
            raise UnknownApplication(f"no finished run of {question.app!r} on {question.cluster!r} is known")
        return application, published[application]
    every = [(application, one) for application, one in published.items() if application.app == question.app]
    if not every:
        raise UnknownApplication(f"no finished run of {question.app!r} is known")
    if len(every) > 1:
        clusters = ", ".join(sorted(application.cluster for application, _ in every))
        raise BadQuestion(f"cluster is missing, expected one of {clusters}: {question.app} has run on each")
    return every[0]


def answer(known: Published, question: Question) -> dict[str, Any]:
    """The prediction and what follows from it. Raises BadQuestion."""
    asked = _ProblemQuery(known, question)
    there = asked.predict(question.ranks)
    said: dict[str, Any] = {
        "cluster": known.application.cluster,
        "app": known.application.app,
        "params": dict(question.params),
        "ranks": question.ranks,
        "nodes": question.nodes,
        "refusal": there.reason if isinstance(there, Refusal) else None,
        "others": asked.others(),
    }
    if isinstance(there, Prediction):
        limit = there.quantile(1 - question.risk)
        said |= {
            "expected_seconds": there.expected_seconds,
            "lower_seconds": there.lower_seconds,
            "upper_seconds": there.upper_seconds,
            "level": LEVEL,
            "limit": {"risk": question.risk, "seconds": limit, "request_seconds": round_up_limit(limit)},
            "speedup": asked.speedup(there),
            "pays": asked.pays(),
            "basis": {
                "model": there.model,
                "runs": there.runs,
                "scales": there.scales,
                "largest_ranks": there.largest_ranks,
                "pooled_from": there.pooled_from,
            },
            "conditions": list(there.conditions),
            "warnings": list(there.warnings),
        }
    if question.curve:
        said |= {"curve": asked.curve(), "observed": asked.observed()}
    return said


def round_up_limit(seconds: float) -> int:
    """A time limit in whole seconds, rounded up: to minutes within an hour, to 5 within 6 hours, to 15 beyond.

    >>> round_up_limit(61.0), round_up_limit(3601.0), round_up_limit(22000.0)
    (120, 3900, 22500)
    """
    step = next(step for limit, step in _STEPS if seconds <= limit)
    return math.ceil(seconds / step) * step


class _ProblemQuery:
    """One problem of an application, with as many ranks to a node as asked for."""

    def __init__(self, known: Published, question: Question) -> None:
        self._question = question
        self._predictor = known.predictor
        self._problem = problem_name(known.application, question.params)
        self._application = known.application
        self._names = list(known.problems)
        self._runs = known.problems.get(self._problem)
        every = known.problems.values() if self._runs is None else [self._runs]
        self._smallest = int(min(runs.scales[0] for runs in every))
        self._largest = int(max(runs.scales[-1] for runs in every))

    def predict(self, ranks: int) -> Prediction | Refusal:
        """The runtime on so many ranks. Raises BadQuestion."""
        nodes = self._question.nodes
        if nodes is not None and ranks != self._question.ranks:
            nodes = max(1, round(ranks * nodes / self._question.ranks))
        try:
            return self._predictor.predict(self._problem, ranks, nodes)
        except ValueError as error:
            raise BadQuestion(str(error)) from None

    def others(self) -> list[str]:
        """Parameters that have been run, OTHERS of them at most, where those asked for have not."""
        if self._runs is not None:
            return []
        return [name.removeprefix(str(self._application)).strip() for name in self._names[-OTHERS:]]

    def speedup(self, there: Prediction) -> dict[str, Any] | None:
        """Against the smallest scale: its median where it was run, else what is predicted for it."""
        ranks = self._smallest
        if self._runs is not None:
            seconds = smallest_scale(self._runs)[1]
        elif isinstance(at := self.predict(ranks), Prediction):
            seconds = at.expected_seconds
        else:
            return None
        ratio = seconds / there.expected_seconds
        return {
            "base_ranks": ranks,
            "base_seconds": seconds,
            "ratio": ratio,
            "efficiency": ratio * ranks / self._question.ranks,
        }

    def pays(self) -> dict[str, Any] | None:
        """The number of ranks from which on twice as many do not pay; `ends` says by what the search ended.

        rule: twice as many are less than MIN_GAIN times as fast. refusal: further out nothing can be said.
        """
        ranks, here = self._smallest, self.predict(self._smallest)
        if isinstance(here, Refusal):
            return None
        while 2 * ranks <= MOST_RANKS:
            there = self.predict(2 * ranks)
            if isinstance(there, Refusal):
                return {"until_ranks": ranks, "ends": "refusal", "gain": MIN_GAIN}
            if here.expected_seconds < MIN_GAIN * there.expected_seconds:
                return {"until_ranks": ranks, "ends": "rule", "gain": MIN_GAIN}
            ranks, here = 2 * ranks, there
        return {"until_ranks": ranks, "ends": "refusal", "gain": MIN_GAIN}

    def curve(self) -> list[list[float]]:
        """Ranks, lower, expected and upper seconds from the smallest scale to the largest or the one asked for."""
        last = max(self._largest, self._question.ranks)
        scales = np.unique(np.rint(np.geomspace(self._smallest, last, POINTS)).astype(int)).tolist()
        every = ((ranks, self.predict(ranks)) for ranks in sorted({*scales, self._question.ranks}))
        return [
            [ranks, there.lower_seconds, there.expected_seconds, there.upper_seconds]
            for ranks, there in every
            if isinstance(there, Prediction)
        ]

    def observed(self) -> list[list[float]]:
        """Ranks and seconds of the runs of this problem, the newest of them."""
        if self._runs is None:
            return []
        pairs = zip(self._runs.ranks.tolist(), self._runs.seconds.tolist(), strict=True)
        return [list(pair) for pair in pairs][-OBSERVED:]
