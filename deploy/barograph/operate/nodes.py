"""`barograph nodes`: nodes that delay job after job, on how many jobs that rests, and a check to begin with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from barograph.cli import Parser
from barograph.terminal import console
from barograph.views import queries
from barograph.views.log import Row
from barograph.views.refusal import opened_each
from barograph.views.words import finite, json_object, local, number, share
from barograph_agent.settings import agent, places
from barograph_collector.daemon.service import Exit

MAX_NODES: Final = 1000


def nodes_table(found: Iterable[Row]) -> Table:
    """One line per node, those with most evidence first."""
    table = Table(title="Nodes that delay their jobs", title_justify="left")
    for name in ("node", "score", "slower by", "slowest in", "of jobs", "last", "check"):
        table.add_column(name, justify="left" if name in ("node", "last", "check") else "right")
    for row in found:
        table.add_row(
            escape(row["host"]),
            number(row["score"]),
            share(row["excess"]) if finite(row["excess"]) else "-",
            f"{row['blamed']:,}",
            f"{row['jobs']:,}",
            local(row["time"]),
            escape(row["advice"]),
            style="bold red" if row["suspected"] else "",
        )
    return table


def main(arguments: Sequence[str]) -> int:
    """Print the nodes; 69 if no collector answers."""
    parser = Parser(
        prog="barograph nodes",
        description="Show nodes that are the slowest of their jobs more often than by chance. A score above 1 is "
        "significant over all nodes; such nodes that are slower by 2 % or more are marked. Nothing is drained.",
    )
    places.add_collector_option(parser, agent.endpoint(os.environ), several=True)
    parser.add_argument("--json", action="store_true", help="nodes as JSON, an object per line")
    options = parser.parse_args(arguments)
    out = console()
    with opened_each(options.collector, 5.0, read_refused=Exit.UNAVAILABLE) as logs:
        found = queries.suspects(MAX_NODES).ask(logs.readers, MAX_NODES)
        if options.json:
            for row in found:
                sys.stdout.buffer.write(json_object(row) + b"\n")
            sys.stdout.buffer.flush()
        elif found:
            out.print(nodes_table(found))
        else:
            out.print("No node stands out: none is the slowest of its jobs more often than by chance.")
    return logs.status
