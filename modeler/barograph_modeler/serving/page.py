"""`GET /predict`: predictions over HTTP, as JSON or Prometheus text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_collector.auth.http_access import ANYBODY, Access, Viewer
from barograph_collector.daemon.families import gauge
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import Published
from barograph_modeler.forecasts.works import with_work
from barograph_modeler.learning.learner import Learner
from barograph_modeler.maxima.tails import AlikeTails
from barograph_modeler.recognition.recognizer import Recognizer
from barograph_modeler.recognition.request import Asked, Request
from barograph_modeler.serving.answer import ProblemQuery, UnknownApplication, answer, find_application
from barograph_modeler.serving.feature_answer import answer_of_features, find_model
from barograph_modeler.serving.interval_answer import answer_of_intervals
from barograph_modeler.serving.interval_history import IntervalHistory
from barograph_modeler.serving.question import ASKED_COLUMNS, BadQuestion, Question, parse_question

_TEXTS: Final = ("text/plain", "application/openmetrics-text")
_LABELS: Final = ("cluster", "app", "params", "ranks", "nodes")
_SPEEDUPS: Final = (
    (
        "barograph_speedup_predicted_ratio",
        "ratio",
        "Time expected on the fewest ranks that were run over that expected here, as a ratio",
    ),
    (
        "barograph_efficiency_predicted_ratio",
        "efficiency",
        "Speedup over how many times as many ranks there are, as a ratio",
    ),
)


class PredictPage:
    """A WSGI application over the published predictors and models. Thread-safe; it changes no state.

    access: accepted tokens; None accepts every client. still: held while the forecasters and the learner change. What a
    question is about is looked up while they do not; predictors and models are never modified. learner: of the
    intervals; without one, questions about them are bad. recognizer: finds the group of a user's run.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        features: FeatureForecaster,
        *,
        access: Access | None = None,
        still: threading.Lock | None = None,
        learner: Learner | None = None,
        recognizer: Recognizer | None = None,
    ) -> None:
        self._recognizer = recognizer
        self._still = still or threading.Lock()
        self._forecaster = forecaster
        self._features = features
        self._access = access
        self._learner = learner

    def __call__(self, request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        accept = request.get("HTTP_ACCEPT", "")
        if (viewer := self._viewer(request)) is None:
            reply = {"error": "no valid token, expected the header Authorization: Bearer TOKEN"}
            return _send(start_response, HTTPStatus.UNAUTHORIZED, reply, [("WWW-Authenticate", "Bearer")])
        try:
            if request["REQUEST_METHOD"] != "GET":
                raise BadQuestion(f"the method is {request['REQUEST_METHOD'][:20]!r}, expected GET")
            question = parse_question(request.get("QUERY_STRING", ""))
            reply = self._answer(question, viewer)
        except BadQuestion as error:
            return _send(start_response, HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except UnknownApplication as error:
            return _send(start_response, HTTPStatus.NOT_FOUND, {"error": str(error)})
        except _NotFitted as error:
            headers = [("Retry-After", "1")]
            return _send(start_response, HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}, headers)
        if question.text or (accept.strip().startswith(_TEXTS) and not question.intervals):
            registry = CollectorRegistry()
            registry.register(AnswerFamilies(reply))
            encode, content_type = choose_encoder(accept)
            start_response("200 OK", [("Content-Type", content_type)])
            return [encode(registry)]
        return _send(start_response, HTTPStatus.OK, reply)

    def _viewer(self, request: WSGIEnvironment) -> Viewer | None:
        if self._access is None:
            return ANYBODY
        return self._access.authenticate(request.get("HTTP_AUTHORIZATION", ""), request.get("HTTP_COOKIE", ""))

    def _answer(self, question: Question, viewer: Viewer) -> dict[str, Any]:
        if question.features:
            with self._still:
                application, model = find_model(self._features, question)
            with self._forecaster.library.gate.passing():
                return answer_of_features(application, model, question)
        with self._still:
            question, known, tails = self._located(question, viewer)
            history = None
            if question.intervals:
                if self._learner is None:
                    raise BadQuestion("intervals is '1', expected 0: no intervals are learned here")
                scales = self._forecaster.history.scales(known.application)
                places, parts = (place for place, _ in scales), self._forecaster.parts
                history = IntervalHistory.of(known, places, self._learner.workloads, question, parts)
        with self._forecaster.library.gate.passing():
            return answer(known, question, tails) if history is None else answer_of_intervals(known, history, question)

    def query(self, question: Question) -> tuple[ProblemQuery, AlikeTails]:
        """What a question comes to, for a caller in this process. Raises UnknownApplication and BadQuestion."""
        question, known, tails = self._located(question, ANYBODY)
        return ProblemQuery(known, question), tails

    def _located(self, question: Question, viewer: Viewer) -> tuple[Question, Published, AlikeTails]:
        if question.user and not viewer.may_see(question.user):
            raise BadQuestion(f"user is {question.user[:80]!r}, expected {viewer.name!r}, whose token this is")
        if question.like:
            question = self._like(question, viewer)
        elif question.asked:
            question = self._recognised(question)
        try:
            application, known = find_application(self._forecaster.library.published, question)
        except UnknownApplication:
            if self._forecaster.is_learning(question.cluster, question.app):
                raise _NotFitted(f"{question.app} is being learned at this moment") from None
            raise
        return question, known, self._forecaster.tails(application.cluster)

    def _like(self, question: Question, viewer: Viewer) -> Question:
        """The question with what it leaves out taken from a job. Raises UnknownApplication and BadQuestion."""
        place = self._forecaster.place_of(question.like)
        if place is None or not viewer.may_see(self._forecaster.user_of(question.like)):
            raise UnknownApplication(f"no job {question.like[:80]!r} is known, or it has no ranks")
        cluster, app = place.application
        published = self._forecaster.library.published.get(place.application)
        own = dict(place.params) if published is None or question.nodes else published.space.params_of(place)
        if question.app not in ("", app) or question.cluster not in ("", cluster):
            raise BadQuestion(f"job {question.like} is of {app} on {cluster}, expected that application or none")
        params, ranks = own | dict(question.params), question.ranks or place.ranks
        is_alike = not question.params and ranks == place.ranks and question.nodes in (None, place.known_nodes)
        group = place.workload if is_alike else None
        return question._replace(app=app, cluster=cluster, ranks=ranks, params=params, group=group)

    def _recognised(self, question: Question) -> Question:
        """The question with work and sizes of the command that it is about. Raises BadQuestion."""
        row = dict.fromkeys(ASKED_COLUMNS, "") | dict(question.asked)
        application, known = find_application(self._forecaster.library.published, question)
        works = self._forecaster.works
        # A script may start another program in its place, and ranks then have none.
        asked = [_asked(row), _asked(row | {"script": ""})] if row["script"] else [_asked(row)]
        labels = [works.label(application, one, learn=False) for one in asked]
        label, found = next((one for one in zip(labels, asked, strict=True) if one[0] in known.space.sizes),
                            (labels[0], asked[0]))  # fmt: skip
        params = dict(with_work(tuple(question.params.items()), label, found))
        # Of numbers that do not matter, groups have the value of their first run only.
        needless = works.varied(application, label) - known.space.followed(label) - question.params.keys()
        params = {name: text for name, text in params.items() if name not in needless}
        group = None
        if question.user and self._recognizer is not None and not question.params and (request := Request.of_row(row)):
            place = (application.cluster, application.app, question.user, question.ranks, question.nodes)
            group = self._recognizer.group_of(*place, request)
        return question._replace(app=application.app, cluster=application.cluster, params=params, group=group)


def _asked(row: Mapping[str, Any]) -> Asked | None:
    """What a row of `works` asks for. Raises BadQuestion."""
    try:
        request = Request.of_row(row)
        return None if request is None else request.asked(row)
    except ValueError as error:
        raise BadQuestion(f"asked is {error}, expected columns of the table works") from None


class _NotFitted(Exception):
    pass


class AnswerFamilies(Collector):
    """An answer as metric families."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        self._reply = reply

    def collect(self) -> Iterator[Metric]:
        """All families; if the prediction was refused, only the first has a sample."""
        reply = self._reply
        params = " ".join(f"{name}={value}" for name, value in sorted(reply["params"].items()))
        labels = [reply["cluster"], reply["app"], params, str(reply["ranks"]), str(reply["nodes"] or "")]
        text = "Whether there is a prediction: 1, or 0 where it is refused"
        yield gauge("barograph_predict_success", text, [(labels, int(reply["refusal"] is None))], *_LABELS)
        quantiles, speedup = [], None
        if reply["refusal"] is None:
            limits = (reply["lower_seconds"], reply["expected_seconds"], reply["upper_seconds"])
            quantiles = list(zip((0.025, 0.5, 0.975), limits, strict=True))
            if (limit := reply["limit"]) is not None:
                quantiles.append((1 - limit["risk"], limit["seconds"]))
            speedup = reply["speedup"]
        yield gauge(
            "barograph_runtime_predicted_seconds",
            "Quantile of the runtime in seconds",
            (([*labels, f"{probability:.6g}"], seconds) for probability, seconds in quantiles),
            *_LABELS,
            "probability",
        )
        for name, key, text in _SPEEDUPS:
            yield gauge(name, text, [(labels, speedup[key])] if speedup is not None else [], *_LABELS)


def _send(
    start_response: StartResponse, status: HTTPStatus, reply: Mapping[str, Any], headers: Sequence[tuple[str, str]] = ()
) -> list[bytes]:
    body = json.dumps(reply).encode() + b"\n"
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json"), *headers])
    return [body]
