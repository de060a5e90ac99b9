"""`barograph run [--app NAME] [--param k=v]... -- COMMAND...`."""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence

from barograph.cli import Parser, checked
from barograph_agent import launch
from barograph_agent.job import rules
from barograph_agent.job.identity import JobError, account, clean, from_environment, parse_params
from barograph_agent.protocol.tables import ROWS_PER_SECOND
from barograph_agent.settings import agent, places
from barograph_agent.sidecar.plan import RunOptions


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = Parser(
        prog="barograph run",
        usage="barograph run [--app NAME] [--param NAME=VALUE]... [--] COMMAND [ARGUMENT...]",
        description="Run COMMAND (an MPI launcher or any program) unmodified, watch its collectives, and print four "
        "lines at its end. Exits with the command's status; 127 if it does not exist, 126 if it cannot be run.",
    )
    parse.add_argument("--app", help="application; only its runs are compared with this one (default: the program)")
    parse.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter that affects the runtime; runs with different values are not compared",
    )
    places.add_collector_option(parse, None, several=True)
    parse.add_argument(
        "--drain",
        type=checked(float, lambda seconds: 0 <= seconds < math.inf, "seconds, 0 or more"),
        default=10.0,
        metavar="SECONDS",
        help="time limit of delivery at the end; the rest stays in the spool (default: %(default)s)",
    )
    parse.add_argument(
        "--budget",
        type=agent.rows,
        metavar="ROWS",
        help="average rows per second that the run may send; beyond, intervals are reduced to blocks "
        f"(default: $BAROGRAPH_BUDGET or {ROWS_PER_SECOND:g})",
    )
    parse.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parse


def _findings(command: Sequence[str], environment: Mapping[str, str]) -> rules.Findings:
    """The findings of the site's rules for this command; a warning and no findings where the rules are invalid."""
    path = places.rules(environment)
    try:
        return rules.apply(rules.read(path), command) if path else rules.Findings()
    except rules.RulesError as error:
        print(f"barograph: {error}; running without them", file=sys.stderr)
        return rules.Findings()


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    parse = parser()
    options = parse.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parse.error("COMMAND is missing, expected a program to run after --")
    environment, complaint = agent.environment_or_complaint(os.environ)
    if complaint:
        print(f"barograph: {complaint}; running without this file", file=sys.stderr)
    try:
        job = from_environment(
            environment,
            command=command,
            app=options.app,
            params=parse_params(options.param),
            user=account(),
            host=platform.node(),
            # Process ids repeat in PID namespaces and on other hosts.
            unique=f"{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(3).hex()}-{clean(platform.node(), 'host', 16)}",
        )
    except JobError as error:
        parse.error(str(error))
    settings = RunOptions(
        options.collector or places.endpoint(environment),
        options.drain,
        spool_bytes=agent.value_or_default("spool_bytes", environment),
        findings=_findings(command, environment),
        rows_per_second=options.budget or agent.value_or_default("budget", environment),
    )
    return launch.run(command, job, settings, environment, sys.stderr)
