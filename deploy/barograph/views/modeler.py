"""HTTP client of the modeler, and scrapes of the metrics of any daemon."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from barograph.options import http_address
from barograph.views.refusal import NoResult
from barograph_agent.settings import places
from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.service import Exit

PORT_OFFSET: Final = 2
"""The modeler's port minus the collector's, as `barograph up` assigns them."""
DEFAULT_MODELER: Final = "http://127.0.0.1:7452"
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
    """A client that knows since when the modeler does not answer, None while it does.

    clock: Unix seconds. command: the command that waits while an application is being learned; empty if nobody does.
    """

    def __init__(self, url: str, clock: Callable[[], float], command: str = "") -> None:
        self.url = url
        self._command = command
        self.unavailable_since: float | None = None
        self._clock = clock

    def predict(self, fields: Mapping[str, Any], credentials: Mapping[str, str]) -> dict[str, Any]:
        """The answer of `ask`. credentials: headers that authenticate the viewer. Raises NoResult."""
        since = None
        try:
            if self._command:
                return ask_patiently(self.url, fields, credentials, self._command)
            return ask(self.url, fields, credentials)
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
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
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
    with urllib.request.urlopen(url, timeout=seconds) as reply:
        text = reply.read(most_bytes).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def add_modeler_option(parser: argparse.ArgumentParser, collector: str) -> None:
    """Add the option that names the modeler, by default that of a collector."""
    parser.add_argument(
        "--modeler",
        type=http_address,
        default=default_modeler(collector),
        metavar="URL",
        help="the modeler's address (default: two ports above the collector's, %(default)s)",
    )


def default_modeler(collector: str) -> str:
    """The modeler's address derived from the collector's, the first of several: two ports above, as `barograph up` has
    it.

    >>> default_modeler("tcp://127.0.0.1:7450")
    'http://127.0.0.1:7452'
    """
    scheme, _, rest = places.endpoints(collector)[0].partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        return DEFAULT_MODELER
    return f"http://{host}:{int(port) + PORT_OFFSET}"
