"""Answers to questions about runtimes, as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import numpy as np

from barograph_agent.protocol.tables import MAX_RANKS
from barograph_modeler.forecasts.history import PER_NODE, Application, ranks_per_node
from barograph_modeler.forecasts.library import Published
from barograph_modeler.forecasts.problems import ProblemSize, UnlocatedQuestion
from barograph_modeler.forecasts.works import WORK
from barograph_modeler.maxima.tails import AlikeTails
from barograph_modeler.scaling.amdahl_law import fit_amdahl
from barograph_modeler.scaling.answer import Prediction, Refusal
from barograph_modeler.serving.completion import CompletedParams, beyond, completed, similar_params, unfollowed
from barograph_modeler.serving.question import BadQuestion, Question

LEVEL: Final = 0.95
GRACE_SECONDS: Final = 60.0
"""How much longer than its request a job runs that a scheduler ends."""
MIN_GAIN: Final = 1.25
"""Doubling the ranks pays if it makes the run at least this many times as fast."""
POINTS: Final = 40
OBSERVED: Final = 2_000
_STEPS: Final = ((3600, 60), (6 * 3600, 300), (math.inf, 900))
"""Time limits up to the first number of seconds are rounded up to multiples of the second."""

T = TypeVar("T")


class UnknownApplication(LookupError):
    """An unknown application. The text names it."""


def find_application(published: Mapping[Application, T], question: Question) -> tuple[Application, T]:
    """The published entry of the application in question. Raises UnknownApplication, and BadQuestion if ambiguous."""
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


def answer(known: Published, question: Question, tails: AlikeTails | None = None) -> dict[str, Any]:
    """The prediction, speedup, scale where it stops paying, and on request the curve. Raises BadQuestion.

    tails: show which tail probability of limits at scales that have run holds the risk; that itself if not given.
    """
    query = ProblemQuery(known, question)
    prediction = query.predict(question.ranks)
    reply: dict[str, Any] = {
        "cluster": known.application.cluster,
        "app": known.application.app,
        "params": known.space.relevant(query.given.params),
        "ranks": question.ranks,
        "nodes": question.nodes,
        "refusal": query.refused(prediction) if isinstance(prediction, Refusal) else None,
        "others": query.others(),
        "series": query.series(),
    }
    if isinstance(prediction, Prediction):
        reply |= {
            "expected_seconds": prediction.expected_seconds,
            "lower_seconds": prediction.lower_seconds,
            "upper_seconds": prediction.upper_seconds,
            "level": LEVEL,
            "limit": query.time_limit(prediction, question.risk, tails),
            "speedup": query.speedup(prediction),
            "pays": query.pays(),
            "amdahl": query.amdahl(),
            "parts": query.parts(question.ranks),
            "basis": {
                "model": prediction.model,
                "runs": prediction.runs,
                "scales": prediction.scales,
                "largest_ranks": prediction.largest_ranks,
                "pooled_from": prediction.pooled_from,
                "seconds": query.seconds_of(prediction),
            },
            "conditions": [
                *prediction.conditions,
                *query.given.conditions,
                *unfollowed(known, query.given.params),
                *query.left_out(),
                *query.growth(),
            ],
            "warnings": [*query.given.doubts, *prediction.warnings, *beyond(known, query.given.params)],
        }
    if question.curve:
        reply |= {"curve": query.curve(), "observed": query.observed(), "parts_curve": query.parts_curve()}
    return reply


def round_up_limit(seconds: float) -> int:
    """A time limit in whole seconds, rounded up: to minutes within an hour, to 5 within 6 hours, to 15 beyond.

    >>> round_up_limit(61.0), round_up_limit(3601.0), round_up_limit(22000.0)
    (120, 3900, 22500)
    """
    step = next(step for limit, step in _STEPS if seconds <= limit)
    return math.ceil(seconds / step) * step


class ProblemQuery:
    """One problem of an application, at the ranks per node of the question."""

    def __init__(self, known: Published, question: Question) -> None:
        self._question = question
        self._known = known
        self._predictor = known.predictor
        self.refusal: Refusal | None = None
        self._predictions: dict[int, Prediction | Refusal] = {}
        """By ranks: an answer needs some of them several times."""
        self.given = CompletedParams(question.params)
        try:
            params = dict(question.params)
            if question.nodes is not None and PER_NODE in known.space.size_names(params):
                params.setdefault(PER_NODE, ranks_per_node(question.ranks, question.nodes))
            self.given = completed(known, params)
            self._place = known.space.locate(self.given.params)
        except UnlocatedQuestion as error:
            self._place, self.refusal = ProblemSize("", None), Refusal(str(error))
        self._problem, self._size = self._place.name, self._place.size
        self._space = known.space
        every = known.problems.get(self._problem)
        # Where no size is asked for, the predictor has that of the only one, or of a series.
        self._runs = every if every is None or self._size is None else every.of_size(self._size)
        if self._runs is not None and not len(self._runs):
            self._runs = None
        of_problem = known.problems.values() if every is None else [every]
        some = of_problem if self._runs is None else [self._runs]
        self._smallest = int(min(runs.scales[0] for runs in some))
        self._largest = int(max(runs.scales[-1] for runs in some))

    def predict(self, ranks: int) -> Prediction | Refusal:
        """The runtime on `ranks` ranks. Raises BadQuestion."""
        if self.refusal is not None:
            return self.refusal
        if ranks not in self._predictions:
            self._predictions[ranks] = self._predict(ranks)
        return self._predictions[ranks]

    def _predict(self, ranks: int) -> Prediction | Refusal:
        nodes = self._nodes(ranks)
        group = self._question.group if ranks == self._question.ranks else None
        try:
            return self._known.predict(self._place, ranks, nodes, group)
        except ValueError as error:
            raise BadQuestion(str(error)) from None

    def _nodes(self, ranks: int) -> int | None:
        """Nodes at the ranks per node of the question."""
        nodes = self._question.nodes
        return None if nodes is None else max(1, round(ranks * nodes / self._question.ranks))

    def refused(self, refusal: Refusal) -> str:
        """The reason, and which parameters of the question were never run."""
        reason = self._space.reason(refusal, self.given.params)
        return ". ".join([reason, *(doubt.removesuffix(".") for doubt in self.given.doubts)])

    def seconds_of(self, prediction: Prediction) -> list[float] | None:
        """The shortest and the longest of the runs of the scale in question, where the prediction is from these."""
        if prediction.own_runs is None or self._place.length is not None:
            return None
        if seconds := self._known.groups.get(self._question.group or ""):
            return [min(seconds), max(seconds)]
        if self._runs is None:
            return None
        own = self._runs.seconds[self._runs.ranks == self._question.ranks]
        return [float(own.min()), float(own.max())]

    def time_limit(self, prediction: Prediction, risk: float, tails: AlikeTails | None) -> dict[str, Any] | None:
        """The limit to ask for, not above the request that runs like it have kept; None where the interval is too wide
        for one."""
        requested = self._question.requested
        has_kept = max(self.seconds_of(prediction) or (math.inf,)) <= requested + GRACE_SECONDS
        if not prediction.has_time_limit and not (has_kept and requested < math.inf):
            return None
        tail, shown = risk, 1 / (prediction.runs + 1)
        if tails is not None and (runs := prediction.own_runs) is not None:
            # Not below the risk: the limit would be inside the interval of the same answer.
            tail, shown = min(tails.quantile(risk, prediction.spread, runs), risk), tails.supported_risk(runs)
        seconds = prediction.time_limit(tail)
        if tails is not None and (bound := tails.bound(risk)) > prediction.upper_seconds:
            seconds = min(seconds, bound)
        if has_kept:
            seconds = min(seconds, requested)
        request = min(round_up_limit(seconds), requested) if has_kept else round_up_limit(seconds)
        limit = {"seconds": seconds, "request_seconds": math.ceil(request)}
        return {"risk": risk, "supported_risk": max(risk, shown), **limit}

    def left_out(self) -> list[str]:
        """Whether the answer is about the only work of which something is known, and there are runs of others."""
        if not self._known.space.usual or WORK in self._question.params:
            return []
        return ["Runs of which it is not known what they asked for are left out."]

    def growth(self) -> list[str]:
        """If no size was asked for and the prediction goes along a series, the size that it has there."""
        size = self._series_size(self._question.ranks)
        return (
            []
            if size is None
            else [f"The size grows with the ranks as it did: {self._space.text(self.given.params, size)}."]
        )

    def series(self) -> dict[str, Any] | None:
        """If the size asked for is one of a series along which it grew with the ranks, the names of its parameters, and
        the most ranks of the series."""
        if self.refusal is not None or self._size is None or self._runs is None:
            return None
        every = self._known.problems[self._problem]
        if len(np.unique(every.sizes, axis=0)) < 2 or self._runs.scales.size > 1:
            return None
        largest = int(every.scales[-1])
        if isinstance(self._predictor.default_size(self._problem, largest), Refusal):
            return None
        return {"names": sorted(self._space.size_names(self.given.params)), "largest_ranks": largest}

    def _series_size(self, ranks: int) -> tuple[float, ...] | None:
        if self._size is not None or self._runs is None or len(np.unique(self._runs.sizes, axis=0)) < 2:
            return None
        size = self._predictor.default_size(self._problem, ranks)
        return None if isinstance(size, Refusal) else size

    def others(self) -> list[dict[str, Any]]:
        """If the problem has not run, or there is no prediction, parameters that have run, those like it."""
        is_refused = isinstance(self.predict(self._question.ranks), Refusal)
        if self._runs is not None and not is_refused:
            return []
        return similar_params(self._known, self._space.relevant(self.given.params))

    def speedup(self, prediction: Prediction) -> dict[str, Any] | None:
        """Speedup over what is predicted at the smallest scale.

        None along a series, since the work at both scales differs, and where one of both predictions is too uncertain.
        """
        ranks = self._smallest
        if prediction.is_vague or self._series_size(ranks) is not None:
            return None
        if isinstance(at := self.predict(ranks), Refusal) or at.is_vague:
            return None
        ratio = at.expected_seconds / prediction.expected_seconds
        return {
            "base_ranks": ranks,
            "base_seconds": at.expected_seconds,
            "ratio": ratio,
            "efficiency": ratio * ranks / self._question.ranks,
        }

    def pays(self) -> dict[str, Any] | None:
        """The largest number of ranks up to which doubling pays. `ends` is the reason that the search ended:

        rule: doubling is less than MIN_GAIN times as fast. refusal: there is no prediction beyond, or a vague one. None
        along a series, and where no doubling can be predicted.
        """
        if self._series_size(self._smallest) is not None:
            return None
        ranks, here = self._smallest, self.predict(self._smallest)
        if isinstance(here, Refusal) or here.is_vague:
            return None
        found = {"from_ranks": ranks, "gain": MIN_GAIN}
        while 2 * ranks <= MAX_RANKS:
            prediction = self.predict(2 * ranks)
            if isinstance(prediction, Refusal) or prediction.is_vague:
                return None if ranks == self._smallest else {"until_ranks": ranks, "ends": "refusal", **found}
            if here.expected_seconds < MIN_GAIN * prediction.expected_seconds:
                return {"until_ranks": ranks, "ends": "rule", **found}
            ranks, here = 2 * ranks, prediction
        return {"until_ranks": ranks, "ends": "refusal", **found}

    def parts(self, ranks: int) -> dict[str, float] | None:
        """Seconds of what the predicted time consists of, largest first; None if that is not known, as of runs of a
        length that has not run."""
        if self._place.length is not None or isinstance(prediction := self.predict(ranks), Refusal):
            return None
        shares = self._known.parts.shares(self._place.name, ranks, self._place.size)
        return {name: share * prediction.expected_seconds for name, share in shares.items()} or None

    def amdahl(self) -> dict[str, Any] | None:
        """Amdahl's law in the runs of the problem: the parallel share, and at the largest scale the time over that of
        the law; each as lower limit, median and upper limit. None at fewer than three scales."""
        if self._runs is None or (found := fit_amdahl(self._runs.of_size(self._runs.sizes[-1]))) is None:
            return None
        ranks, tau = max(found.overheads.items())
        return {
            "parallel": list(found.parallel),
            "until_ranks": found.cutoff,
            "ranks": ranks,
            "time_over_law": [1 / one for one in reversed(tau)],
        }

    def parts_curve(self) -> list[list[Any]]:
        """Ranks and the parts there, at scales that double; empty where the parts are not known."""
        last = max(self._largest, self._question.ranks)
        doublings = [self._smallest * 2**step for step in range(40) if self._smallest * 2**step <= last]
        found = []
        for ranks in sorted({*doublings, last}):
            if parts := self.parts(ranks):
                found.append([ranks, parts])
        return found

    def curve(self) -> list[list[float]]:
        """Ranks, lower, expected and upper seconds from the smallest scale to the largest, or to the requested one."""
        last = max(self._largest, self._question.ranks)
        known = [] if self._runs is None else self._runs.scales.astype(int).tolist()
        scales = np.unique(np.rint(np.geomspace(self._smallest, last, POINTS)).astype(int)).tolist()
        every = ((ranks, self.predict(ranks)) for ranks in sorted({*scales, *known, self._question.ranks}))
        return [
            [ranks, prediction.lower_seconds, prediction.expected_seconds, prediction.upper_seconds]
            for ranks, prediction in every
            if isinstance(prediction, Prediction)
        ]

    def observed(self) -> list[list[float]]:
        """Ranks and seconds of the newest runs of the problem; none of another length."""
        if self._runs is None or self._place.length is not None:
            return []
        pairs = zip(self._runs.ranks.tolist(), self._runs.seconds.tolist(), strict=True)
        return [list(pair) for pair in pairs][-OBSERVED:]
