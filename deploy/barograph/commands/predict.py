"""`barograph predict`: how long a run will take at a scale, what limit to ask for, and whether more ranks pay."""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from barograph.cli import MISSING_EXTRA
from barograph.commands.feature_file import BadFeatures, read_features
from barograph.views.advice import sentences
from barograph_agent.job.identity import JobError, parse_params
from barograph_agent.settings import agent
from barograph_collector.daemon.service import Exit

ABOVE: Final = 2
"""The modeler's port above the collector's, as `barograph up` gives them."""
DEFAULT_MODELER: Final = "http://127.0.0.1:7452"
ANSWER_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 4 * 2**20
LEARNING_SECONDS: Final = 30.0
"""How long to wait for an application whose first runs are being learned."""
_AGAIN_SECONDS: Final = 0.5


class PredictionRefused(Exception):
    """There is no answer. The text says why, in the modeler's words where it has answered; `status` is the exit's."""

    def __init__(self, text: str, status: Exit) -> None:
        super().__init__(text)
        self.status = status


class Learning(PredictionRefused):
    """Not yet, but in a few seconds."""

    def __init__(self, text: str) -> None:
        super().__init__(text, Exit.UNAVAILABLE)


class ModelerUnreachable(PredictionRefused):
    """The modeler did not answer. The text names its address and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(text, Exit.UNAVAILABLE)


def main(arguments: Sequence[str]) -> int:
    """Print the answer; 65 if there is none for want of history, 69 if the modeler is not there."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        params = parse_params(options.param)
    except JobError as error:
        parser.error(str(error))
    if options.plot is not None and options.features is not None:
        parser.error("--plot draws scales and --features knows none, expected one of the two")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        print("barograph predict: --plot needs matplotlib: pip install 'barograph[report]'", file=sys.stderr)
        return MISSING_EXTRA
    headers = {}
    if options.token is not None:
        try:
            headers = {"Authorization": f"Bearer {options.token.read_text().strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            return _refuse(f"token {options.token}: {error}, expected one of `barograph keys add user`", Exit.DATA)
    fields = {"app": options.app, "ranks": options.ranks, "nodes": options.nodes, "cluster": options.cluster}
    fields |= {"risk": options.risk, "curve": 1 if options.plot else None}
    fields |= {f"param.{name}": value for name, value in params.items()}
    try:
        fields |= _features(options.features)
        said = _ask_patiently(
            options.modeler, {name: value for name, value in fields.items() if value is not None}, headers
        )
    except PredictionRefused as error:
        return _refuse(str(error), error.status)
    try:
        if options.plot is not None and said["refusal"] is None:
            from barograph.views.projection import plot

            plot(said, options.plot)
    except OSError as error:
        return _refuse(f"{options.plot}: {error.strerror}", Exit.STATE)
    print(json.dumps(said, indent=2) if options.json else "\n".join(sentences(said)))
    return Exit.OK if said["refusal"] is None else Exit.DATA


def _features(path: Path | None) -> dict[str, float]:
    """Fields of the question. Raises Refused."""
    try:
        return {} if path is None else {f"feature.{name}": value for name, value in read_features(path).items()}
    except BadFeatures as error:
        raise PredictionRefused(str(error), Exit.DATA) from None
    except OSError as error:
        raise PredictionRefused(f"{path}: {error.strerror}", Exit.DATA) from None


def _ask_patiently(modeler: str, fields: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """The same as `ask`, but what is being learned is waited for, and that is said."""
    deadline = time.monotonic() + LEARNING_SECONDS
    waited = False
    while True:
        try:
            return ask(modeler, fields, headers)
        except Learning as error:
            if time.monotonic() > deadline:
                raise
            if not waited:
                print(f"barograph predict: {error}; waiting", file=sys.stderr)
            waited = True
            time.sleep(_AGAIN_SECONDS)


def ask(modeler: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The modeler's answer. headers: who asks, where the modeler wants to know. Raises Away, Learning and Refused."""
    url = f"{modeler.rstrip('/')}/predict?{urlencode(fields)}"
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
            body = reply.read(ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        raise _refusal(modeler, error) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ModelerUnreachable(
            f"no answer from the modeler at {modeler}: {reason}; check that `barograph modeler` runs"
        ) from None
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ModelerUnreachable(f"{modeler} does not answer with a prediction, expected a modeler")
    return said


def _refusal(modeler: str, error: urllib.error.HTTPError) -> Exception:
    with error:
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            text = f"{modeler} answers viewers only, expected --token FILE with a token that your operators have made"
            return PredictionRefused(text, Exit.USAGE)
        try:
            text = str(json.loads(error.read(ANSWER_BYTES))["error"])
        except (OSError, ValueError, KeyError, TypeError):
            return ModelerUnreachable(f"{modeler} answers {error.code} {error.reason}, expected a modeler")
    if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
        return Learning(text)
    by_status = {400: Exit.USAGE, 404: Exit.DATA}
    return PredictionRefused(text, by_status.get(error.code, Exit.UNAVAILABLE))


def _refuse(text: str, status: int) -> int:
    print(f"barograph predict: {text}", file=sys.stderr)
    return status


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barograph predict",
        description="Say how long a run will take, also at a scale nobody has run yet: from the runs that the log has.",
    )
    parser.add_argument("--app", required=True, help="the application, as `barograph run --app` or its import named it")
    parser.add_argument("--ranks", required=True, metavar="N", help="MPI ranks")
    parser.add_argument("--nodes", metavar="N", help="nodes they are on (default: as the history has it)")
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the run; repeat it for more"
    )
    parser.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="answer from what is known of the run: a JSON object of numbers, or lines NAME=VALUE",
    )
    parser.add_argument("--cluster", metavar="NAME", help="needed where the application has run on several")
    parser.add_argument(
        "--risk", metavar="P", help="probability with which the time limit may be too short (default: 0.01)"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")
    parser.add_argument(
        "--token", type=Path, metavar="FILE", help="who asks, where the modeler wants to know (from your operators)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw runtime over ranks with its interval")
    parser.add_argument(
        "--modeler",
        type=http_address,
        default=default_modeler(agent.endpoint(os.environ)),
        metavar="URL",
        help="the modeler's address (default: two ports above the collector's, %(default)s)",
    )
    return parser
