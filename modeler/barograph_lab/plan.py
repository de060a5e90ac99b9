"""`barograph plan`: proposes the runs to measure for a model of weak scaling."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from barograph.cli import USAGE_ERROR, CommandError, Parser, checked
from barograph.terminal import console
from barograph.views.log import limits
from barograph.views.modeler import add_modeler_option, ask_patiently, question
from barograph.views.words import period, plural, span
from barograph_agent.job.identity import JobError, parse_params
from barograph_agent.settings import agent
from barograph_collector.daemon.service import Exit
from barograph_lab.columns import table
from barograph_lab.studies.weak.complexity import BadExpression, Complexity
from barograph_lab.studies.weak.planner import POWER, PlannedRun, plan

REPEATS = "5 to 7"
"""Runs per configuration that the paper recommends; the least time is learned."""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph plan",
        description="Propose the runs to measure for a model of weak scaling: work per process stays the same.",
    )
    add = parser.add_argument
    targets = checked(
        lambda text: [int(part) for part in text.split(",")], bool, "whole numbers with commas between them"
    )
    add("--complexity", required=True, metavar="EXPR", help="serial work over size: N**3, N*log2(N)")
    add("--size", required=True, type=float, metavar="N", help="problem size on --at-ranks ranks")
    add("--at-ranks", type=int, default=1, metavar="P", help="ranks that --size is for (default: 1)")
    add("--max-ranks", required=True, type=int, metavar="P", help="most ranks available for measurements")
    add("--count", type=int, default=8, metavar="K", help="configurations (default: 8)")
    add("--grid", choices=list(POWER), default="rectangle", help="shape of ranks (default: rectangle, at most 2:1)")
    add("--ranks-multiple", type=int, default=1, metavar="K", help="ranks are multiples of K: full nodes")
    add("--size-multiple", type=float, default=1, metavar="K", help="sizes are multiples of K: blocks")
    add("--targets", type=targets, default=[], metavar="P[,P]", help="ranks to predict for later")
    add("--app", help="predict the targets from the runs of this application in the log")
    add(
        "--size-param",
        metavar="NAME",
        help="the parameter that is the size of its runs (default: that of --complexity)",
    )
    add("--param", action="append", default=[], metavar="NAME=VALUE", help="another parameter of its runs; repeatable")
    add("--cluster", metavar="NAME", help="of the application, needed if it has run on several")
    add_modeler_option(parser, agent.endpoint(os.environ))
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _predict(
    targets: Sequence[PlannedRun], variable: str, params: Mapping[str, str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The modeler's answer for each target. params: of the application's runs, without the size."""
    name = options.size_param or variable
    return [
        ask_patiently(
            options.modeler,
            question({**params, name: f"{one.size:.12g}"}, app=options.app, cluster=options.cluster, ranks=one.ranks),
            {},
            "plan",
        )
        for one in targets
    ]


def _sentence(target: PlannedRun, answer: Mapping[str, Any]) -> str:
    where = f"{plural(target.ranks, 'rank')}, size {target.size:.10g}"
    if answer["refusal"] is not None:
        return f"{where}: no prediction: {period(answer['refusal'])}"
    lower, expected, upper = map(span, limits(answer))
    return f"{where}: {expected} predicted; 95 of 100 runs take {lower} to {upper}."


def main(arguments: Sequence[str]) -> int:
    """Print the configurations; 2 if there is no such plan."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.app is not None and not options.targets:
        parser.error("--app predicts targets and there are none, expected --targets")
    try:
        params = parse_params(options.param)
        complexity = Complexity.parse(options.complexity)
        configurations = plan(
            complexity,
            options.size,
            at_ranks=options.at_ranks,
            max_ranks=options.max_ranks,
            count=options.count,
            grid=options.grid,
            ranks_multiple=options.ranks_multiple,
            size_multiple=options.size_multiple,
            targets=options.targets,
        )
    except (BadExpression, JobError, ValueError) as error:
        raise CommandError(str(error), USAGE_ERROR) from error
    measured = len(configurations) - len(options.targets)
    answers = [] if options.app is None else _predict(configurations[measured:], complexity.variable, params, options)
    work = complexity.work(options.size) / options.at_ranks
    if options.json:
        rows = [asdict(one) for one in configurations]
        for row, answer in zip(rows[measured:], answers, strict=False):
            row["prediction"] = answer
        head = {"complexity": options.complexity, "work_per_rank": work}
        print(json.dumps({**head, "measure": rows[:measured], "targets": rows[measured:]}))
        return Exit.OK
    heads = ("", "ranks", "wanted", "grid", complexity.variable, "wanted", "work per rank")
    cells = (
        (
            "measure" if i < measured else "target",
            str(one.ranks),
            f"{one.wanted_ranks:g}",
            "x".join(map(str, one.grid)),
            f"{one.size:.10g}",
            f"{one.wanted_size:.6g}",
            f"{one.work_change:+.2%}",
        )
        for i, one in enumerate(configurations)
    )
    console().print(table(None, heads, cells, box=None))
    worst = max(abs(one.work_change) for one in configurations)
    if answers:
        print("\n".join(_sentence(one, answer) for one, answer in zip(configurations[measured:], answers, strict=True)))
    print(
        f"{options.complexity} / ranks = {work:.6g} everywhere, to {worst:.1%}. Run each configuration {REPEATS} times."
    )
    if worst > 0.05:
        print("Rounding moved the work per rank by more than 5 %: expect errors of that size. A larger size helps.")
    return Exit.OK
