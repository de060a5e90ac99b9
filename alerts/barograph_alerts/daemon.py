"""`barograph alerts`: wires the scorer to the log and to Prometheus."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from barograph_alerts.evidence import ALPHA, MARGIN
from barograph_collector.client import LogReader
from barograph_collector.follow import Follower
from barograph_collector.station import add_arguments, serve

METRICS_PORT = 7453
TABLES = ["paces", "bands", "events", "sites", "jobs", "predictions", "node_blocks", "blocks", "runs"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the alerts daemon until SIGTERM or SIGINT; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="barograph alerts", description="Judge running jobs against the history of their workload."
    )
    add_arguments(parser, METRICS_PORT)
    parser.add_argument(
        "--alpha",
        type=_between(0, 1),
        default=ALPHA,
        help="bound on the share of healthy jobs that ever alarm (default: %(default)s)",
    )
    parser.add_argument(
        "--margin",
        type=_between(-1e-9, 100),
        default=MARGIN,
        help="slowdown that does not matter, 0.05 is 5 %% (default: %(default)s)",
    )
    options = parser.parse_args(argv)

    from barograph_alerts.exporter import AlertsExporter
    from barograph_alerts.scorer import Scorer

    scorer = Scorer(alpha=options.alpha, margin=options.margin)

    def prepare(follower: Follower, reader: LogReader) -> None:
        # Jobs that have their final verdict are not judged again, and nothing before the first open one is read.
        for table in ("scores", "jobs"):
            for page in reader.read_all(table):
                scorer.take(table, page.columns, time.time())
        follower.offsets["blocks"] = follower.offsets["node_blocks"] = scorer.first_open_offset

    return serve("alerts", scorer, TABLES, AlertsExporter(scorer), options, prepare=prepare)


def _between(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = low
        if not low < value < high:
            raise argparse.ArgumentTypeError(f"{text!r}, expected a number between {max(low, 0):g} and {high:g}")
        return value

    return parse


if __name__ == "__main__":
    sys.exit(main())
