"""`barograph modeler`: wires the learner to the log and to Prometheus."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from barograph_agent.settings.sources import Configuration
from barograph_agent.system.clock import CLOCK
from barograph_collector.client.selection import select
from barograph_collector.daemon.options import run_daemon
from barograph_collector.daemon.runner import Output, serve
from barograph_collector.daemon.service import CannotStart, Exit
from barograph_collector.daemon.settings import load_access
from barograph_collector.daemon.source import LogSource
from barograph_modeler.settings import ModelerSettings

if TYPE_CHECKING:
    from barograph_collector.auth.http_access import Access
    from barograph_modeler.processor import ModelerProcessor
    from barograph_modeler.state.snapshot import SnapshotKeeper
    from barograph_modeler.workers import Workers

TABLES = [
    "jobs", "works", "signatures", "work_edits", "blocks", "phases", "features", "runs", "scores", "predictions",
    "outcomes", "models",
]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the modeler until SIGTERM or SIGINT; returns its exit status."""
    return run_daemon(ModelerSettings, "Learn from the log how long intervals and runs should take.", _serve, argv)


def _serve(configuration: Configuration[ModelerSettings]) -> int:
    from barograph_modeler.features.forecaster import FeatureForecaster
    from barograph_modeler.features.library import FeatureLibrary
    from barograph_modeler.features.train_worker import TrainWorker
    from barograph_modeler.forecasts.forecaster import Forecaster
    from barograph_modeler.forecasts.library import PredictorLibrary
    from barograph_modeler.learning.learner import Learner
    from barograph_modeler.processor import ModelerProcessor
    from barograph_modeler.serving.exporter import ModelerExporter
    from barograph_modeler.serving.page import PredictPage
    from barograph_modeler.state.snapshot import SnapshotKeeper

    settings = configuration.settings
    if settings.state is not None:
        try:
            settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            text = f"state directory {settings.state}: {error.strerror}, expected a writable directory"
            raise CannotStart(text, Exit.STATE) from None
    access = load_access(settings.access)
    of_classes, of_applications = _workers(settings), _workers(settings)
    learner = Learner(
        seed=settings.seed,
        window_seconds=settings.window,
        classes=settings.classes,
        accept=settings.accept,
        refit_seconds=settings.refit,
        workers=of_classes,
    )
    with ThreadPoolExecutor(1, "fit") as executor, ThreadPoolExecutor(1, "features") as feature_executor:
        forecaster = Forecaster(PredictorLibrary(executor, settings.seed, workers=of_applications))
        worker = TrainWorker()
        features = FeatureForecaster(FeatureLibrary(worker.learn, feature_executor, settings.seed))
        processor = ModelerProcessor(learner, forecaster, features, settings.histories)
        still = threading.Lock()
        page = PredictPage(
            forecaster, features, access=access, still=still, learner=learner, recognizer=processor.recognizer
        )
        exporter = ModelerExporter(learner, forecaster, features, processor.changes)
        keeper = None
        if settings.state is not None:
            keeper = SnapshotKeeper(settings.state, processor, _depends_on(settings), gate=forecaster.library.gate)

        try:
            return serve(
                processor,
                TABLES,
                exporter,
                configuration,
                prepare=partial(_prepare, processor, keeper),
                keep=keeper.keep if keeper else None,
                pages={"/predict": page},
                still=still,
                each_cycle=partial(_each_cycle, access),
            )
        finally:
            worker.stop()
            for one in (of_classes, of_applications):
                if one is not None:
                    one.close()
            executor.shutdown(wait=False, cancel_futures=True)


def _prepare(processor: ModelerProcessor, keeper: SnapshotKeeper | None, source: LogSource) -> None:
    """Go on from the snapshot, and read what was said of jobs that are read again: it holds."""
    from barograph_modeler.recognition.recognizer import RECORDED

    if keeper is not None:
        keeper.restore(source)
    first = source.reader.read("assignments", -RECORDED, 1).next_offset
    for page in select(source.reader, "assignments", f"log_offset >= {first}", ["job", "workload"]):
        with processor.quarantine.guard("assignments"):
            processor.recognizer.read("assignments", page.columns, CLOCK.now())


def _each_cycle(access: Access | None) -> list[Output]:
    """Read the tokens that are accepted, if they have changed."""
    if access is not None:
        access.poll()
    return []


def _workers(settings: ModelerSettings) -> Workers[Any] | None:
    """What fits where many classes or applications wait. Raises CannotStart."""
    from barograph_modeler.workers import MAX_TASKS, TASKS_PER_PROCESS, Workers, dask_cluster, local_processes

    if settings.dask is not None:
        if importlib.util.find_spec("distributed") is None:
            text = f"dask is {settings.dask}, but the package distributed is not installed, expected barograph[dask]"
            raise CannotStart(text, Exit.USAGE)
        return Workers(f"the Dask cluster at {settings.dask}", partial(dask_cluster, settings.dask), MAX_TASKS)
    if not (count := settings.workers):
        return None
    name = f"{count} local process{'es' if count > 1 else ''}"
    return Workers(name, partial(local_processes, count), TASKS_PER_PROCESS * count)


def _depends_on(settings: ModelerSettings) -> str:
    """The settings of which a snapshot is."""
    return f"window of {settings.window:g} s, histories by {settings.histories}"


if __name__ == "__main__":
    sys.exit(main())
