"""`barograph modeler`: wires the learner to the log and to Prometheus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from barograph_collector.service import Exit
from barograph_collector.station import add_arguments, serve
from barograph_modeler.windows import WINDOW_SECONDS, check_window_seconds

METRICS_PORT = 7452
TABLES = ["jobs", "blocks", "features", "runs", "scores", "predictions", "outcomes", "models"]
Number = TypeVar("Number", int, float)


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
    parser.add_argument("--seed", type=int, default=0, help="of the bootstraps (default: %(default)s)")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="where a snapshot is kept, to go on from after a restart (default: none, the log is read again)",
    )
    parser.add_argument(
        "--classes",
        type=_at_least(1),
        default=100_000,
        metavar="N",
        help="classes kept, over all workloads; the least recently learned go first (default: %(default)s)",
    )
    parser.add_argument(
        "--accept",
        type=_at_least(0),
        default=5,
        metavar="N",
        help="alarmed runs in a row that, if they agree, become the history; 0: never (default: %(default)s)",
    )
    parser.add_argument(
        "--refit",
        type=_at_least(0.0),
        default=0.2,
        metavar="SECONDS",
        help="of CPU time for fits in each half second (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    try:
        check_window_seconds(options.window)
    except ValueError as error:
        parser.error(f"argument --window: {error}")

    from barograph_modeler.exporter import ModelerExporter
    from barograph_modeler.features.apart import Apart
    from barograph_modeler.features.forecast import FeatureForecaster
    from barograph_modeler.features.library import FeatureLibrary
    from barograph_modeler.forecast import Forecaster
    from barograph_modeler.learner import Learner
    from barograph_modeler.library import Library
    from barograph_modeler.mind import Modeler
    from barograph_modeler.page import PredictPage
    from barograph_modeler.snapshot import Keeper

    learner = Learner(
        seed=options.seed,
        window_seconds=options.window,
        classes=options.classes,
        accept=options.accept,
        refit_seconds=options.refit,
    )
    if options.state is not None:
        try:
            options.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            print(
                f"barograph modeler: state directory {options.state}: {error.strerror}, expected a writable directory",
                file=sys.stderr,
            )
            return Exit.STATE
    with ThreadPoolExecutor(1, "fit") as executor, ThreadPoolExecutor(1, "features") as waiting:
        forecaster = Forecaster(Library(executor, options.seed))
        apart = Apart()
        features = FeatureForecaster(FeatureLibrary(apart.learn, waiting, options.seed))
        mind, exporter = Modeler(learner, forecaster, features), ModelerExporter(learner, forecaster, features)
        pages = {"/predict": PredictPage(forecaster, features)}
        if options.state is None:
            status = serve("modeler", mind, TABLES, exporter, options, pages=pages)
        else:
            keeper = Keeper(options.state, mind, f"window of {options.window:g} s", gate=forecaster.library.gate)
            status = serve(
                "modeler", mind, TABLES, exporter, options, prepare=keeper.restore, keep=keeper.keep, pages=pages
            )
        apart.stop()
        executor.shutdown(wait=False, cancel_futures=True)
    return status


def _at_least(least: Number) -> Callable[[str], Number]:
    def parse(text: str) -> Number:
        try:
            value = type(least)(text)
        except ValueError:
            value = least - 1
        if not least <= value < float("inf"):
            kind = "a whole number" if isinstance(least, int) else "a number"
            raise argparse.ArgumentTypeError(f"{text!r}, expected {kind} of at least {least:g}")
        return value

    return parse


if __name__ == "__main__":
    sys.exit(main())
