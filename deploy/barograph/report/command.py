"""`barograph report`: writes one HTML file from log and modeler."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barograph.cli import CommandError, Parser, checked
from barograph.commands.output_file import replaced
from barograph.options import identifier, since_argument
from barograph.report import application, job, page
from barograph.views.collectors.log_views import LogViews
from barograph.views.context import ViewContext
from barograph.views.log import BATCH, elapsed
from barograph.views.modeler import DEFAULT_MODELER, ModelerClient, modelers_of
from barograph.views.refusal import announced, log_errors
from barograph_agent.deliver import keys
from barograph_agent.job.identity import JobError, parse_params
from barograph_agent.protocol.tables import MAX_RANKS
from barograph_agent.settings import places
from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.service import Exit


def main(arguments: Sequence[str]) -> int:
    """Write the page; 65 if the log has no such application or job, 69 if a collector does not answer."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.params = parse_params(options.param)
    except JobError as error:
        parser.error(str(error))
    for endpoint in places.endpoints(options.collector):
        announced(endpoint)
    modelers = modelers_of(options.collector, options.modeler)
    try:
        with (
            log_errors(),
            elapsed("making the report"),
            LogViews(options.collector, keys.from_environment(os.environ), BATCH) as log,
        ):
            name, values = _page(ViewContext(log, ModelerClient(modelers, CLOCK.now, "report")), options)
            away = list(log.away)
            text = page.render(name, {**values, "away": away})
        # JSON in texts of the log can bring surrogates.
        data = text.encode("utf-8", "replace")
        with replaced(options.output) as file:
            file.write(data)
    except OSError as error:
        raise CommandError(f"cannot write {options.output}: {error.strerror}", Exit.STATE) from None
    print(f"{options.output}: {len(data) / 1024:,.0f} KiB")
    if away:
        print(f"barograph report: {', '.join(away)} did not answer: what is there is missing", file=sys.stderr)
    return Exit.UNAVAILABLE if away else Exit.OK


def _page(context: ViewContext, options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The template and its values."""
    if options.job:
        return "job.html", job.view(context, options.job)
    values = application.view(context, options.app, options.cluster, options.params, options.ranks, options.since)
    return "application.html", values


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph report",
        description="Write a page about an application or a job: one HTML file that can be mailed as it is.",
    )
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("--app", type=identifier, metavar="NAME", help="how an application varies and scales")
    subject.add_argument("--job", type=identifier, metavar="JOB", help="what happened to a job, as `status` names it")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.html", help="replaced once all is written"
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the runs; repeatable. Of several sets of parameters that have it, that with the most runs",
    )
    ranks = checked(int, lambda number: 1 <= number <= MAX_RANKS, f"a whole number from 1 to {MAX_RANKS}")
    parser.add_argument(
        "--ranks", type=ranks, metavar="N", help="predict for so many (default: twice as many as were ever run)"
    )
    parser.add_argument(
        "--since", type=since_argument, default=0.0, metavar="TIME", help="runs from then on: 2026-05-31, 7d, 12h"
    )
    parser.add_argument("--cluster", type=identifier, metavar="NAME", help="needed where it has run on several")
    parser.add_argument(
        "--modeler",
        metavar="URL[,...]",
        help=f"the modeler's address, that of each shard (default: two ports above the collector's, else"
        f" {DEFAULT_MODELER})",
    )
    places.add_collector_option(parser, places.endpoint(os.environ), several=True)
    return parser
