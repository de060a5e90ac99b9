"""The queue of applications whose models are to be fitted in an executor."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ClassVar, Final, Generic, TypeVar

from barograph_agent.system.clock import CLOCK
from barograph_modeler.forecasts.history import Application

REST: Final = 20.0
"""Pause between fits of an application, in durations of its last fit: a flood of ended jobs costs 5 % of a core."""

Fitted = TypeVar("Fitted")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class FitQueue(Generic[Fitted]):
    """Applications with outdated models, and running fits. failed: number of fits that raised an exception.

    clock: seconds. cost: seconds that the calling thread has spent on fits.
    """

    most: ClassVar[int]
    """Limit on concurrent fits."""
    failure: ClassVar[str]
    """Log message for a fit that raised; its arguments are the application and the exception."""

    def __init__(
        self, executor: Executor, clock: Callable[[], float] = CLOCK.monotonic, cost: Callable[[], float] | None = None
    ) -> None:
        self.failed = 0
        self._executor = executor
        self._clock = clock
        self._cost = cost or clock
        self._due: OrderedDict[Application, None] = OrderedDict()
        self._fitting: dict[Application, Future[tuple[Fitted, float]]] = {}
        self._rests: dict[Application, float] = {}

    @property
    def waiting(self) -> int:
        """Number of applications whose newest runs are in no model yet."""
        return len(self._due.keys() | self._fitting.keys())

    def is_behind(self, application: Application) -> bool:
        """Whether the newest runs of an application are in no model yet."""
        return application in self._due or application in self._fitting

    def _start(self, prepare: Callable[[Application], Callable[[], Fitted] | None], most: int | None = None) -> None:
        """Start due fits, at most `most` at once. prepare: returns the fit, or None without runs."""
        now = self._clock()
        for application in list(self._due):
            if len(self._fitting) >= (self.most if most is None else most):
                return
            if application in self._fitting or now < self._rests.get(application, now):
                continue
            del self._due[application]
            if (fit := prepare(application)) is not None:
                self._fitting[application] = self._executor.submit(self._timed, fit)

    def _finished(self) -> dict[Application, Fitted]:
        """Remove and return finished fits; failed ones are counted and logged."""
        done = {}
        for application, future in list(self._fitting.items()):
            if not future.done():
                continue
            del self._fitting[application]
            if (error := future.exception()) is not None:
                self.failed += 1
                _log.error(self.failure, application, error)
                continue
            done[application], seconds = future.result()
            self._rests[application] = self._clock() + REST * seconds
        if done:
            self._rests = {name: until for name, until in self._rests.items() if until > self._clock()}
        return done

    def _timed(self, fit: Callable[[], Result]) -> tuple[Result, float]:
        began = self._cost()
        return fit(), self._cost() - began
