"""HTTP client of the modeler, and scrapes of the metrics of any daemon."""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from barograph.options import http_addresses
from barograph.views.refusal import NoResult
from barograph_agent.settings import places
from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.service import Exit

PORT_OFFSET: Final = 2
"""The modeler's port minus the collector's, as `barograph up` assigns them."""
DEFAULT_MODELER: Final = "http://127.0.0.1:7452"
DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens addresses of the service, which no proxy that the environment names can reach."""
ANSWER_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 4 * 2**20
LEARNING_SECONDS: Final = 30.0
"""How long to wait while the modeler learns the first runs of an application, as after its start."""
_AGAIN_SECONDS: Final = 0.5


class Learning(NoResult):
    """The modeler is still learning; it will answer in a few seconds."""

    status = Exit.UNAVAILABLE


class ModelerUnavailable(NoResult):
    """The modeler did not answer. The text names its address and what to do."""

    status = Exit.UNAVAILABLE


class ModelerClient:
    """A client of the modelers of all shards that knows since when one of them does not answer, None while all do.

    urls: their addresses. clock: Unix seconds. command: the command that waits while an application is being learned;
    empty if nobody does.
    """

    def __init__(self, urls: Sequence[str], clock: Callable[[], float], command: str = "") -> None:
        self.urls = urls
        self._command = command
        self.unavailable_since: float | None = None
        self._clock = clock

    def predict(self, fields: Mapping[str, Any], credentials: Mapping[str, str]) -> dict[str, Any]:
        """The answer of `ask_each`. credentials: headers that authenticate the viewer. Raises NoResult."""
        since = None
        try:
            return ask_each(self.urls, fields, credentials, self._command)
        except ModelerUnavailable:
            since = self.unavailable_since or self._clock()
            raise
        finally:
            self.unavailable_since = since


def question(params: Mapping[str, str], **fields: object) -> dict[str, Any]:
    """The query fields of `GET /predict` for a run with these parameters, without those that are None."""
    given = {name: value for name, value in fields.items() if value is not None}
    return given | {f"param.{name}": value for name, value in params.items()}


def ask(modeler: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The answer of `GET /predict`. headers: credentials. Raises NoResult, as ModelerUnavailable and Learning."""
    url = f"{modeler.rstrip('/')}/predict?{urlencode(fields)}"
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with DIRECT.open(request, timeout=ANSWER_SECONDS) as reply:
            body = reply.read(ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        raise _refusal(modeler, error) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        what = "check that `barograph modeler` runs"
        if isinstance(reason, TimeoutError):
            what = "it may be busy, as after an import: ask again"
        raise ModelerUnavailable(f"no answer from the modeler at {modeler}: {reason}; {what}") from None
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ModelerUnavailable(f"{modeler} does not answer with a prediction, expected a modeler")
    return answer


def ask_each(
    modelers: Sequence[str], fields: Mapping[str, Any], headers: Mapping[str, str], command: str
) -> dict[str, Any]:
    """The answer that rests on most runs of those of several modelers. Raises NoResult where none has one.

    command: as of `ModelerClient`.
    """
    answers: list[dict[str, Any]] = []
    errors: list[NoResult] = []
    for url in modelers:
        try:
            answers.append(ask_patiently(url, fields, headers, command) if command else ask(url, fields, headers))
        except NoResult as error:
            errors.append(error)
    if not answers:
        raise next((error for error in errors if isinstance(error, ModelerUnavailable | Learning)), errors[0])
    return max(answers, key=lambda answer: (answer.get("refusal") is None, answer.get("runs") or 0))


def ask_patiently(modeler: str, fields: Mapping[str, Any], headers: Mapping[str, str], command: str) -> dict[str, Any]:
    """`ask`, repeated while the modeler is learning the application; the first wait is reported on stderr."""
    deadline = CLOCK.monotonic() + LEARNING_SECONDS
    waited = False
    while True:
        try:
            return ask(modeler, fields, headers)
        except Learning as error:
            if CLOCK.monotonic() > deadline:
                raise
            if not waited:
                print(f"barograph {command}: {error}; waiting", file=sys.stderr)
            waited = True
            CLOCK.sleep(_AGAIN_SECONDS)


def _refusal(modeler: str, error: urllib.error.HTTPError) -> NoResult:
    with error:
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            text = f"{modeler} answers viewers only, expected --token FILE with a token that your operators have made"
            return NoResult(text, Exit.USAGE)
        try:
            text = str(json.loads(error.read(ANSWER_BYTES))["error"])
        except (OSError, ValueError, KeyError, TypeError):
            return ModelerUnavailable(f"{modeler} answers {error.code} {error.reason}, expected a modeler")
    if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
        return Learning(text)
    return NoResult(text, {400: Exit.USAGE, 404: Exit.DATA}.get(error.code, Exit.UNAVAILABLE))


def scrape(url: str, seconds: float, most_bytes: int) -> list[Sample]:
    """The samples that a metrics endpoint exposes. Raises OSError, http.client.HTTPException and ValueError."""
    with DIRECT.open(url, timeout=seconds) as reply:
        text = reply.read(most_bytes).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def add_modeler_option(parser: argparse.ArgumentParser, collectors: str) -> None:
    """Add the option that names the modelers, by default those of the collectors."""
    parser.add_argument(
        "--modeler",
        type=http_addresses,
        default=",".join(modelers_of(collectors)),
        metavar="URL[,...]",
        help="the modeler's address, that of each shard (default: two ports above the collector's, %(default)s)",
    )


def modelers_of(collectors: str, given: str | None = None) -> list[str]:
    """The given addresses of modelers, else those two ports above their collectors, as `barograph up` has them.

    >>> modelers_of("tcp://127.0.0.1:7450,tcp://log2:7450")
    ['http://127.0.0.1:7452', 'http://log2:7452']
    """
    if given:
        return given.split(",")
    found = (re.fullmatch(r"tcp://(.+):(\d+)", collector) for collector in places.endpoints(collectors))
    return [f"http://{one[1]}:{int(one[2]) + PORT_OFFSET}" if one else DEFAULT_MODELER for one in found]
