"""`barograph modeler`: wires the learner to the log and to Prometheus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from barograph_collector.station import add_arguments, serve
from barograph_modeler.windows import WINDOW_SECONDS, check_window_seconds

METRICS_PORT = 7452
TABLES = ["jobs", "blocks", "runs", "scores"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the modeler until SIGTERM or SIGINT; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="barograph modeler", description="Learn from the log how long intervals and runs should take."
    )
    add_arguments(parser, METRICS_PORT)
    parser.add_argument(
        "--window",
        type=float,
        default=WINDOW_SECONDS,
        metavar="SECONDS",
        help="pieces in which jobs are compared: longer is steadier, shorter alarms sooner (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the reservoirs (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        check_window_seconds(options.window)
    except ValueError as error:
        parser.error(f"argument --window: {error}")

    from barograph_modeler.exporter import ModelerExporter
    from barograph_modeler.learner import Learner

    learner = Learner(seed=options.seed, window_seconds=options.window)
    return serve("modeler", learner, TABLES, ModelerExporter(learner), options)


if __name__ == "__main__":
    sys.exit(main())
