"""`barograph predict`: how long a run will take at a scale, what limit to ask for, and whether more ranks pay."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barograph.cli import MISSING_EXTRA
from barograph.commands.feature_file import read_features
from barograph.views.advice import sentences
from barograph.views.modeler import Learning, ask, default_modeler, http_address, question
from barograph.views.refusal import NoResult, refuse
from barograph_agent.job.identity import JobError, parse_params
from barograph_agent.settings import agent
from barograph_collector.daemon.service import Exit

LEARNING_SECONDS: Final = 30.0
"""How long to wait for an application whose first runs are being learned."""
_AGAIN_SECONDS: Final = 0.5


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
        refuse("predict", "--plot needs matplotlib: pip install 'barograph[report]'")
        return MISSING_EXTRA
    headers = {}
    if options.token is not None:
        try:
            headers = {"Authorization": f"Bearer {options.token.read_text().strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            return refuse("predict", f"token {options.token}: {error}, expected one of `barograph keys add user`")
    fields = {name: getattr(options, name) for name in ("app", "ranks", "nodes", "cluster", "risk")}
    fields = question(params, **fields, curve=1 if options.plot else None)
    try:
        said = _ask_patiently(options.modeler, fields | _features(options.features), headers)
    except NoResult as error:
        return refuse("predict", error)
    try:
        if options.plot is not None and said["refusal"] is None:
            from barograph.views.projection import plot

            plot(said, options.plot)
    except OSError as error:
        return refuse("predict", f"{options.plot}: {error.strerror}", Exit.STATE)
    print(json.dumps(said, indent=2) if options.json else "\n".join(sentences(said)))
    return Exit.OK if said["refusal"] is None else Exit.DATA


def _features(path: Path | None) -> dict[str, float]:
    """Fields of the question. Raises NoResult."""
    try:
        return {} if path is None else {f"feature.{name}": value for name, value in read_features(path).items()}
    except OSError as error:
        raise NoResult(f"{path}: {error.strerror}") from None


def _ask_patiently(modeler: str, fields: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """The same as `ask`, but waits for what is being learned, and says so on stderr."""
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
