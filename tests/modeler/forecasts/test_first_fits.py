"""First fits of applications by other processes: the same predictors, whatever becomes of the workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from barograph_modeler.forecasts import library as module
from barograph_modeler.forecasts.history import Application, WorkloadHistory, WorkloadPlace
from barograph_modeler.forecasts.library import MIN_WAITING, PredictorLibrary, first_fits, publish_all
from barograph_modeler.forecasts.parts.history import PartsHistory
from barograph_modeler.refits.batch import OtherVersion, version
from barograph_modeler.refits.dispatch import SLOW_SECONDS
from helpers.executor import Inline, Slow

APPLICATIONS = [Application("lab", f"app{number}") for number in range(MIN_WAITING)]
PARTS = PartsHistory()


class Cluster(Slow):
    """Workers that fit when they are told to, with what is left of arguments and results behind a network."""

    name, batches = "the workers", 6
    refuses = False

    def executor(self) -> Cluster:
        if self.refuses:
            raise OSError("no scheduler")
        return self

    def close(self) -> None:
        self.waiting.clear()

    def submit(self, work: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        sent = pickle.dumps((work, args))

        def done() -> Any:
            function, given = pickle.loads(sent)
            return pickle.loads(pickle.dumps(function(*given)))

        return super().submit(done)

    def finish(self) -> None:
        for future, work in self.waiting:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
        self.waiting.clear()


class FirstFits:
    """A library after a restart, when no application has a predictor."""

    def __init__(self, cluster: Cluster | None) -> None:
        self.now = 1000.0
        self.history = WorkloadHistory()
        for application in APPLICATIONS:
            for ranks in (1, 2):
                place = WorkloadPlace(f"{application}@{ranks}", application, (("n", "1"),), ranks, 1)
                self.history.learn(place, 100.0 / ranks)
        workers = None if cluster is None else first_fits(cluster, clock=lambda: self.now)
        self.library = PredictorLibrary(Inline(), clock=lambda: self.now, worked=lambda: 0.0, workers=workers)
        self.library.mark_changed(APPLICATIONS)

    def step(self) -> None:
        """As the forecaster does."""
        self.library.publish_fitted(self.history)
        self.library.start_fits(self.history, PARTS)
        self.library.publish_fitted(self.history)

    def all(self) -> None:
        for _ in range(3 * MIN_WAITING):
            self.step()
        assert not self.library.waiting


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "publish", published)


def published(application: Application, known: Any, *rest: Any) -> Any:
    """In place of a fit, which takes a tenth of a second."""
    if application in BROKEN:
        raise ArithmeticError("no fit")
    return (application, [seconds for _, seconds in known])


BROKEN: set[Application] = set()


def test_workers_and_the_modeler_share_the_first_fits() -> None:
    alone, cluster = FirstFits(None), Cluster()
    alone.all()
    together = FirstFits(cluster)
    together.step()
    assert len(cluster.waiting) == 4, "so many at the begin"
    assert set(together.library.published) == {APPLICATIONS[0]}, "one by itself, beside the workers"
    assert together.library.is_behind(APPLICATIONS[-1])
    assert together.library.waiting == MIN_WAITING - 1
    while together.library.waiting:
        cluster.finish()
        together.step()
    assert together.library.published == alone.library.published
    assert together.library.workers is not None
    assert 0 < together.library.workers.fitted < MIN_WAITING


@pytest.mark.parametrize("trouble", ["refuses", "is slow", "fails"])
def test_the_modeler_goes_on_by_itself_without_workers(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    fits = FirstFits(cluster)
    cluster.refuses = trouble == "refuses"
    fits.step()
    if trouble == "is slow":
        fits.now += SLOW_SECONDS + 1
    if trouble == "fails":
        with monkeypatch.context() as patch:
            patch.setattr("barograph_modeler.refits.batch.version", lambda: "another")
            cluster.finish()
    fits.all()
    assert set(fits.library.published) == set(APPLICATIONS)
    assert fits.library.workers is not None
    assert fits.library.workers.is_failed
    assert fits.library.failed == 0


def test_an_application_that_cannot_be_fitted_is_left_to_the_modeler() -> None:
    cluster = Cluster()
    fits = FirstFits(cluster)
    BROKEN.add(APPLICATIONS[-1])  # the first that is sent
    try:
        fits.step()
        cluster.finish()
        fits.all()
    finally:
        BROKEN.clear()
    assert set(fits.library.published) == {*APPLICATIONS[:-1]}
    assert fits.library.failed == 1


def test_a_worker_of_another_version_refuses() -> None:
    with pytest.raises(OtherVersion, match=f"the worker has barograph {version()}, expected 1"):
        publish_all([], 0, "1")
