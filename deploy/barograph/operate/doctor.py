"""`barograph doctor`: check whether runs on this node can be watched."""

from __future__ import annotations

import json
import os

from barograph.cli import Parser
from barograph_agent.doctor.checks import examine
from barograph_agent.settings import agent, places

FAILED = 1


def main(arguments: list[str]) -> int:
    """Check this node: one line per check, with advice where it fails; 1 if any check fails."""
    parse = Parser(prog="barograph doctor", description=main.__doc__)
    environment, _ = agent.environment_or_complaint(os.environ)
    parse.add_argument("programs", nargs="*", metavar="PROGRAM", help="can these be watched, too?")
    parse.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parse.add_argument(
        "--collector",
        default=places.endpoint(environment),
        metavar="ENDPOINT[,...]",
        help="the collectors (default: %(default)s)",
    )
    options = parse.parse_args(arguments)
    findings = []
    for finding in examine(environment, options.collector, options.programs):
        findings.append(finding)
        if not options.json:
            print(f"{finding.state:<4}  {finding.check:<9}  {finding.text}", flush=True)
            if finding.advice:
                print(f"{'':<17}-> {finding.advice}", flush=True)
    well = all(finding.state != "fail" for finding in findings)
    if options.json:
        print(json.dumps({"well": well, "findings": [finding._asdict() for finding in findings]}, indent=2))
    return 0 if well else FAILED
