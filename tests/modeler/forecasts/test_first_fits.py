"""First fits of applications by other processes: the same predictors, whatever becomes of the workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from typing import Any

import pytest

from barograph_modeler.forecasts import library as module
from barograph_modeler.forecasts.history import Application, WorkloadHistory, WorkloadPlace
from barograph_modeler.forecasts.library import MIN_WAITING, PredictorLibrary
from barograph_modeler.forecasts.parts.history import PartsHistory
from barograph_modeler.workers import Workers
from helpers.executor import Inline

APPLICATIONS = [Application("lab", f"app{number}") for number in range(MIN_WAITING)]
PARTS = PartsHistory()


class Remote(Executor):
    """Processes that fit at once, with what is left of arguments and results behind a network."""

    refuses = False

    def start(self) -> tuple[Executor, Callable[[], None]]:
        if self.refuses:
            raise OSError("no scheduler")
        return self, lambda: None

    def submit(self, work: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        function, given = pickle.loads(pickle.dumps((work, args)))
        return Inline().submit(lambda: pickle.loads(pickle.dumps(function(*given))))


class FirstFits:
    """A library after a restart, when no application has a predictor."""

    def __init__(self, remote: Remote | None) -> None:
        self.now = 1000.0
        self.history = WorkloadHistory()
        for application in APPLICATIONS:
            for ranks in (1, 2):
                place = WorkloadPlace(f"{application}@{ranks}", application, (("n", "1"),), ranks, 1)
                self.history.learn(place, 100.0 / ranks)
        self.workers = None if remote is None else Workers("the workers", remote.start, 4, lambda: self.now)
        self.library = PredictorLibrary(Inline(), clock=lambda: self.now, worked=lambda: 0.0, workers=self.workers)
        self.library.mark_changed(APPLICATIONS)

    def step(self) -> None:
        """As the forecaster does."""
        self.library.publish_fitted(self.history)
        self.library.start_fits(self.history, PARTS)
        self.library.publish_fitted(self.history)

    def all(self) -> None:
        for _ in range(3 * MIN_WAITING):
            self.step()
            if self.workers is not None:
                wait_for(self.workers._sent.values())
        assert not self.library.waiting


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In place of a fit, which takes a tenth of a second."""
    monkeypatch.setattr(module, "publish", published)
    yield
    BROKEN.clear()


def published(application: Application, known: Any, *rest: Any) -> Any:
    if application in BROKEN:
        raise ArithmeticError("no fit")
    return (application, [seconds for _, seconds in known])


BROKEN: set[Application] = set()


def test_workers_and_the_modeler_share_the_first_fits() -> None:
    alone, together = FirstFits(None), FirstFits(Remote())
    alone.all()
    together.library.start_fits(together.history, PARTS)
    assert together.workers is not None
    assert together.workers.keys == APPLICATIONS[:-5:-1]
    assert together.library.is_behind(APPLICATIONS[-1])
    together.all()
    assert together.library.published == alone.library.published
    assert 0 < together.workers.done < MIN_WAITING


def test_the_modeler_goes_on_by_itself_without_workers() -> None:
    remote = Remote()
    remote.refuses = True
    fits = FirstFits(remote)
    fits.all()
    assert set(fits.library.published) == set(APPLICATIONS)
    assert fits.workers is not None
    assert fits.workers.is_failed
    assert fits.library.failed == 0


def test_an_application_that_cannot_be_fitted_is_left_to_the_modeler() -> None:
    BROKEN.add(APPLICATIONS[-1])  # the first that is sent
    fits = FirstFits(Remote())
    fits.all()
    assert set(fits.library.published) == {*APPLICATIONS[:-1]}
    assert fits.library.failed == 1
