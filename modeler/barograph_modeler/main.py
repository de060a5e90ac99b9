"""`barograph modeler`: wires the learner to the log and to Prometheus."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from barograph_collector.auth.http_access import Access
from barograph_collector.auth.keys import KeysError
from barograph_collector.daemon.options import parse
from barograph_collector.daemon.runner import serve
from barograph_collector.daemon.service import Exit
from barograph_modeler.settings import MODELER, check_modeler

TABLES = ["jobs", "blocks", "features", "runs", "scores", "predictions", "outcomes", "models"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the modeler until SIGTERM or SIGINT; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="barograph modeler", description="Learn from the log how long intervals and runs should take."
    )
    configuration = parse(parser, MODELER, argv, os.environ, check_modeler)
    options = configuration.options

    from barograph_modeler.features.forecaster import FeatureForecaster
    from barograph_modeler.features.library import FeatureLibrary
    from barograph_modeler.features.train_worker import Apart
    from barograph_modeler.forecasts.forecaster import Forecaster
    from barograph_modeler.forecasts.library import Library
    from barograph_modeler.learning.learner import Learner
    from barograph_modeler.processor import ModelerProcessor
    from barograph_modeler.serving.exporter import ModelerExporter
    from barograph_modeler.serving.page import PredictPage
    from barograph_modeler.state.snapshot import Keeper

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
    try:
        access = Access.read(options.access) if options.access else None
    except KeysError as error:
        print(f"barograph modeler: {error}", file=sys.stderr)
        return Exit.STATE
    with ThreadPoolExecutor(1, "fit") as executor, ThreadPoolExecutor(1, "features") as waiting:
        forecaster = Forecaster(Library(executor, options.seed))
        apart = Apart()
        features = FeatureForecaster(FeatureLibrary(apart.learn, waiting, options.seed))
        mind, exporter = ModelerProcessor(learner, forecaster, features), ModelerExporter(learner, forecaster, features)
        keeper = None
        if options.state is not None:
            keeper = Keeper(options.state, mind, f"window of {options.window:g} s", gate=forecaster.library.gate)
        status = serve(
            mind,
            TABLES,
            exporter,
            configuration,
            prepare=keeper.restore if keeper else None,
            keep=keeper.keep if keeper else None,
            pages={"/predict": PredictPage(forecaster, features, access=access)},
            each_cycle=access.look if access else lambda: None,
        )
        apart.stop()
        executor.shutdown(wait=False, cancel_futures=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
