"""`GET /predict`: questions over HTTP, answers as JSON or as Prometheus text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_collector.auth.http_access import Access
from barograph_collector.daemon.families import gauge
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.serving.answer import Unknown, answer, find
from barograph_modeler.serving.feature_answer import answer_of_features
from barograph_modeler.serving.question import BadQuestion, Question, parse_question

_TEXTS: Final = ("text/plain", "application/openmetrics-text")
_LABELS: Final = ("cluster", "app", "params", "ranks", "nodes")
_SPEEDUPS: Final = (
    (
        "barograph_speedup_predicted_ratio",
        "ratio",
        "Time on the fewest ranks that were run over the time expected here, as a ratio",
    ),
    (
        "barograph_efficiency_predicted_ratio",
        "efficiency",
        "Speedup over how many times as many ranks there are, as a ratio",
    ),
)


class PredictPage:
    """A WSGI application over what two forecasters have published. Any thread may call it; it changes nothing.

    access: whose token lets in; None for everybody who can connect.
    """

    def __init__(self, forecaster: Forecaster, features: FeatureForecaster, *, access: Access | None = None) -> None:
        self._forecaster = forecaster
        self._features = features
        self._access = access

    def __call__(self, request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        accept = request.get("HTTP_ACCEPT", "")
        if not self._lets_in(request):
            said = {"error": "no token, or one that is not let in, expected the header Authorization: Bearer TOKEN"}
            return _send(start_response, HTTPStatus.UNAUTHORIZED, said, [("WWW-Authenticate", "Bearer")])
        try:
            if request["REQUEST_METHOD"] != "GET":
                raise BadQuestion(f"the method is {request['REQUEST_METHOD'][:20]!r}, expected GET")
            question = parse_question(request.get("QUERY_STRING", ""))
            said = self._answer(question)
        except BadQuestion as error:
            return _send(start_response, HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except Unknown as error:
            return _send(start_response, HTTPStatus.NOT_FOUND, {"error": str(error)})
        except _Learning as error:
            again = [("Retry-After", "1")]
            return _send(start_response, HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}, again)
        if question.text or accept.strip().startswith(_TEXTS):
            return _send_text(start_response, said, accept)
        return _send(start_response, HTTPStatus.OK, said)

    def _lets_in(self, request: WSGIEnvironment) -> bool:
        if self._access is None:
            return True
        shown = request.get("HTTP_AUTHORIZATION", ""), request.get("HTTP_COOKIE", "")
        return self._access.authenticate(*shown) is not None

    def _answer(self, question: Question) -> dict[str, Any]:
        if question.features:
            with self._forecaster.library.gate.passing():
                return answer_of_features(self._features, question)
        # Asked first: what is learned by the time that it is looked for is there, or was being learned.
        is_learning = self._forecaster.is_learning(question.cluster, question.app)
        try:
            _, known = find(self._forecaster.library.published, question)
        except Unknown:
            if is_learning:
                raise _Learning(f"{question.app} is being learned at this moment") from None
            raise
        with self._forecaster.library.gate.passing():
            return answer(known, question)


class _Learning(Exception):
    pass


class Families(Collector):
    """An answer as metric families."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._said = said

    def collect(self) -> Iterator[Metric]:
        """The families; only the first where the question was refused."""
        said = self._said
        params = " ".join(f"{name}={value}" for name, value in sorted(said["params"].items()))
        labels = [said["cluster"], said["app"], params, str(said["ranks"]), str(said["nodes"] or "")]
        text = "Whether there is a prediction: 1, or 0 where it is refused"
        yield gauge("barograph_predict_success", text, [(labels, int(said["refusal"] is None))], *_LABELS)
        quantiles, speedup = [], None
        if said["refusal"] is None:
            limits = (said["lower_seconds"], said["expected_seconds"], said["upper_seconds"])
            quantiles = list(zip((0.025, 0.5, 0.975), limits, strict=True))
            if (limit := said["limit"]) is not None:
                quantiles.append((1 - limit["risk"], limit["seconds"]))
            speedup = said["speedup"]
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
    start_response: StartResponse, status: HTTPStatus, said: Mapping[str, Any], headers: Sequence[tuple[str, str]] = ()
) -> list[bytes]:
    body = json.dumps(said).encode() + b"\n"
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json"), *headers])
    return [body]


def _send_text(start_response: StartResponse, said: Mapping[str, Any], accept: str) -> list[bytes]:
    registry = CollectorRegistry()
    registry.register(Families(said))
    encode, content_type = choose_encoder(accept)
    start_response("200 OK", [("Content-Type", content_type)])
    return [encode(registry)]
