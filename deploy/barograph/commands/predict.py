"""`barograph predict`: runtime of a run at a scale, the time limit to request, and the speedup of more ranks."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.charts.page import plot
from barograph.cli import CommandError, Parser, checked
from barograph.commands.feature_file import read_features
from barograph.commands.planned_fields import planned_fields, recorded_fields, split_command
from barograph.views.advice import sentences
from barograph.views.intervals import class_ids, interval_sentences, site_names
from barograph.views.modeler import add_modeler_option, ask_each, question
from barograph_agent.job.identity import JobError, parse_params
from barograph_agent.settings import agent
from barograph_collector.daemon.service import Exit
from barograph_modeler.recognition.request import RECORDED, SCALED


def main(arguments: Sequence[str]) -> int:
    """Print the prediction; 65 where the history does not allow one, 69 if the modeler does not answer."""
    parser = _parser()
    own, command = split_command(arguments)
    options = parser.parse_args(own)
    try:
        params = parse_params(options.param)
        planned = planned_fields(command, options.app, params) if command else {}
    except JobError as error:
        parser.error(str(error))
    if options.plot is not None and options.features is not None:
        parser.error("--plot draws scales and --features knows none, expected one of the two")
    if options.intervals and (options.features is not None or options.plot is not None):
        parser.error("--intervals predicts neither from --features nor with --plot, expected it without them")
    headers = {}
    if options.token is not None:
        try:
            headers = {"Authorization": f"Bearer {options.token.read_text().strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            text = f"token {options.token}: {error}, expected one of `barograph keys add user`"
            raise CommandError(text) from None
    names = "app", "like", "ranks", "nodes", "cluster", "user", "requested", "risk"
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    modelers = options.modeler.split(",")
    fields = planned | given
    if "like" not in fields and not fields.keys() >= {"app", "ranks"}:
        parser.error("--app and --ranks are missing, expected both, --like JOB, or a command after --")
    recorded = {RECORDED[0]: options.job_name, SCALED[0]: options.requested and f"{options.requested:g}"}
    if (options.user or options.job_name) and (command or options.like is not None):
        parser.error("--user and --job-name are of imported runs, expected neither --like nor a command after --")
    if options.like is None and not command and (options.user is not None or any(recorded.values())):
        # Digests have the cluster in them, and the application may have run on one only.
        cluster = options.cluster or ask_each(modelers, given, headers, "predict")["cluster"]
        fields |= recorded_fields({name: text for name, text in recorded.items() if text}, options.app, cluster)
    fields = question(params, **fields, curve=1 if options.plot else None, intervals=1 if options.intervals else None)
    if options.features is not None:
        fields |= {f"feature.{name}": value for name, value in read_features(options.features).items()}
    answer = ask_each(modelers, fields, headers, "predict")
    try:
        if options.plot is not None and answer["refusal"] is None:
            plot(answer, options.plot)
    except OSError as error:
        raise CommandError(f"{options.plot}: {error.strerror}", Exit.STATE) from None
    print(json.dumps(answer, indent=2) if options.json else "\n".join(_lines(answer, options.intervals)))
    return Exit.OK if answer["refusal"] is None else Exit.DATA


def _lines(answer: Mapping[str, Any], intervals: bool) -> list[str]:
    if not intervals:
        return sentences(answer, use=", for --param")
    return interval_sentences(answer, site_names(agent.endpoint(os.environ), class_ids(answer)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph predict",
        usage="barograph predict [OPTION]... (--app APP --ranks N | --like JOB | -- COMMAND [ARGUMENT...])",
        description="Predict the runtime of a run, also at untried scales, from the runs in the log.",
    )
    parser.add_argument("--app", help="the application, as named by `barograph run --app` or its import")
    parser.add_argument("--like", metavar="JOB", help="a job in the log: what is not given is as in it")
    parser.add_argument("--job-name", metavar="NAME", help="the job name under which runs were imported")
    parser.add_argument("--user", metavar="NAME", help="whose imported runs: those that asked for the same")
    above_0 = checked(float, lambda seconds: 0 < seconds < math.inf, "seconds above 0")
    parser.add_argument("--requested", type=above_0, metavar="SECONDS", help="the time that the run may take")
    parser.add_argument("--ranks", metavar="N", help="MPI ranks")
    parser.add_argument("--nodes", metavar="N", help="number of nodes (default: as in the history)")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter; repeatable")
    parser.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="features: a JSON object of numbers, or lines NAME=VALUE",
    )
    parser.add_argument("--cluster", metavar="NAME", help="needed if the application has run on several clusters")
    parser.add_argument("--risk", metavar="P", help="probability of exceeding the time limit (default: 0.01)")
    parser.add_argument("--intervals", action="store_true", help="lengths of intervals between collectives instead")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")
    parser.add_argument("--token", type=Path, metavar="FILE", help="viewer's token, if the modeler requires one")
    page = checked(Path, lambda path: path.suffix == ".html", "FILE.html")
    parser.add_argument("--plot", type=page, metavar="FILE.html", help="draw runtime, speedup and parts over ranks")
    add_modeler_option(parser, agent.endpoint(os.environ))
    return parser
