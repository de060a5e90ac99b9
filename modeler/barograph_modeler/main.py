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
from barograph_modeler.settings import ModelerSettings

TABLES = ["jobs", "blocks", "features", "runs", "scores", "predictions", "outcomes", "models"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the modeler until SIGTERM or SIGINT; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="barograph modeler", description="Learn from the log how long intervals and runs should take."
    )
    configuration = parse(parser, ModelerSettings, argv, os.environ)
    settings = configuration.settings

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
        seed=settings.seed,
        window_seconds=settings.window,
        classes=settings.classes,
        accept=settings.accept,
        refit_seconds=settings.refit,
    )
    if settings.state is not None:
        try:
            settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            print(
                f"barograph modeler: state directory {settings.state}: {error.strerror}, expected a writable directory",
                file=sys.stderr,
            )
            return Exit.STATE
    try:
        access = Access.read(settings.access) if settings.access else None
    except KeysError as error:
        print(f"barograph modeler: {error}", file=sys.stderr)
        return Exit.STATE
    with ThreadPoolExecutor(1, "fit") as executor, ThreadPoolExecutor(1, "features") as waiting:
        forecaster = Forecaster(Library(executor, settings.seed))
        apart = Apart()
        features = FeatureForecaster(FeatureLibrary(apart.learn, waiting, settings.seed))
        mind, exporter = ModelerProcessor(learner, forecaster, features), ModelerExporter(learner, forecaster, features)
        keeper = None
        if settings.state is not None:
            keeper = Keeper(settings.state, mind, f"window of {settings.window:g} s", gate=forecaster.library.gate)
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
