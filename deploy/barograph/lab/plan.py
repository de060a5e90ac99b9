"""`barograph plan`: which runs to measure for a model of weak scaling."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from barograph_collector.daemon.service import Exit
from barograph_modeler.studies.weak.complexity import BadExpression, Complexity
from barograph_modeler.studies.weak.planner import POWER, PlannedRun, plan

REPEATS = "5 to 7"
"""Runs per configuration that the paper advises: the least time of them is learned."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barograph plan",
        description="Propose the runs to measure for a model of weak scaling: work per process stays the same.",
    )
    parser.add_argument("--complexity", required=True, metavar="EXPR", help="serial work over size: N**3, N*log2(N)")
    parser.add_argument("--size", required=True, type=float, metavar="N", help="problem size on --at-ranks ranks")
    parser.add_argument("--at-ranks", type=int, default=1, metavar="P", help="ranks that --size is for (default: 1)")
    parser.add_argument("--max-ranks", required=True, type=int, metavar="P", help="ranks there are to measure with")
    parser.add_argument("--count", type=int, default=8, metavar="K", help="configurations (default: 8)")
    parser.add_argument(
        "--grid",
        choices=list(POWER),
        default="rectangle",
        help="what ranks must form (default: rectangle, at most 2:1)",
    )
    parser.add_argument(
        "--ranks-multiple", type=int, default=1, metavar="K", help="ranks are multiples of K: full nodes"
    )
    parser.add_argument("--size-multiple", type=float, default=1, metavar="K", help="sizes are multiples of K: blocks")
    parser.add_argument("--targets", type=_targets, default=[], metavar="P[,P]", help="ranks to predict for later")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _targets(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected whole numbers with commas between them") from None


def main(arguments: Sequence[str]) -> int:
    """Print the configurations; 2 if there is no such plan."""
    options = _parser().parse_args(arguments)
    try:
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
    except (BadExpression, ValueError) as error:
        print(f"barograph plan: {error}", file=sys.stderr)
        return Exit.USAGE
    measured = configurations[: len(configurations) - len(options.targets)]
    work = complexity.work(options.size) / options.at_ranks
    if options.json:
        print(
            json.dumps(
                {
                    "complexity": options.complexity,
                    "work_per_rank": work,
                    "measure": [asdict(one) for one in measured],
                    "targets": [asdict(one) for one in configurations[len(measured) :]],
                }
            )
        )
        return Exit.OK
    _show(configurations, len(measured), complexity)
    worst = max(abs(one.work_change) for one in configurations)
    print(
        f"{options.complexity} / ranks = {work:.6g} everywhere, to {worst:.1%}. Run each configuration {REPEATS} times."
    )
    if worst > 0.05:
        print("Rounding moved the work per rank by more than 5 %: expect errors of that size. A larger size helps.")
    return Exit.OK


def _show(configurations: Sequence[PlannedRun], measured: int, complexity: Complexity) -> None:
    table = Table(box=None)
    for name in ("", "ranks", "wanted", "grid", complexity.variable, "wanted", "work per rank"):
        table.add_column(name, justify="left" if not name else "right")
    for i, one in enumerate(configurations):
        table.add_row(
            "measure" if i < measured else "target",
            str(one.ranks),
            f"{one.wanted_ranks:g}",
            "x".join(map(str, one.grid)),
            f"{one.size:.10g}",
            f"{one.wanted_size:.6g}",
            f"{one.work_change:+.2%}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
