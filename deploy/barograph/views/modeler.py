"""The modeler as views ask it: predictions over HTTP, and the metrics of any daemon."""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from barograph.views.refusal import NoResult
from barograph_collector.daemon.service import Exit

ABOVE: Final = 2
"""The modeler's port above the collector's, as `barograph up` gives them."""
DEFAULT_MODELER: Final = "http://127.0.0.1:7452"
ANSWER_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 4 * 2**20


class Learning(NoResult):
    """There is no answer yet; there will be one in a few seconds."""

    status = Exit.UNAVAILABLE


class ModelerAway(NoResult):
    """The modeler did not answer. The text names its address and what to do."""

    status = Exit.UNAVAILABLE


class ModelerClient:
    """A modeler and since when it does not answer, None while it does. Any thread may ask. clock: Unix seconds."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.url = url
        self.away_since: float | None = None
        self._clock = clock
        self._lock = threading.Lock()

    def predict(self, fields: Mapping[str, Any], proof: Mapping[str, str]) -> dict[str, Any]:
        """Its answer. proof: headers that say who asks. Raises NoResult, and ModelerAway where it does not answer."""
        away = False
        try:
            return ask(self.url, fields, proof)
        except ModelerAway:
            away = True
            raise
        finally:
            with self._lock:
                self.away_since = (self.away_since or self._clock()) if away else None


def question(params: Mapping[str, str], **fields: object) -> dict[str, Any]:
    """The fields of a question about a run with these parameters, without those that are None."""
    given = {name: value for name, value in fields.items() if value is not None}
    return given | {f"param.{name}": value for name, value in params.items()}


def ask(modeler: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The modeler's answer. headers: who asks, if the modeler must know. Raises ModelerAway, Learning and NoResult."""
    url = f"{modeler.rstrip('/')}/predict?{urlencode(fields)}"
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
            body = reply.read(ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        raise _refusal(modeler, error) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ModelerAway(
            f"no answer from the modeler at {modeler}: {reason}; check that `barograph modeler` runs"
        ) from None
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ModelerAway(f"{modeler} does not answer with a prediction, expected a modeler")
    return said


def _refusal(modeler: str, error: urllib.error.HTTPError) -> NoResult:
    with error:
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            text = f"{modeler} answers viewers only, expected --token FILE with a token that your operators have made"
            return NoResult(text, Exit.USAGE)
        try:
            text = str(json.loads(error.read(ANSWER_BYTES))["error"])
        except (OSError, ValueError, KeyError, TypeError):
            return ModelerAway(f"{modeler} answers {error.code} {error.reason}, expected a modeler")
    if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
        return Learning(text)
    return NoResult(text, {400: Exit.USAGE, 404: Exit.DATA}.get(error.code, Exit.UNAVAILABLE))


def scrape(url: str, seconds: float, most_bytes: int) -> list[Sample]:
    """The samples of an exposition. Raises OSError, http.client.HTTPException and ValueError."""
    with urllib.request.urlopen(url, timeout=seconds) as reply:
        text = reply.read(most_bytes).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def default_modeler(collector: str) -> str:
    """Where the modeler answers if the collector is there: two ports further, as `barograph up` has it.

    >>> default_modeler("tcp://127.0.0.1:7450")
    'http://127.0.0.1:7452'
    """
    scheme, _, rest = collector.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        return DEFAULT_MODELER
    return f"http://{host}:{int(port) + ABOVE}"


def http_address(text: str) -> str:
    """Check `http://HOST:PORT`. Raises argparse.ArgumentTypeError."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:  # a port that is none
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r}, expected http://HOST:PORT")
    return text
