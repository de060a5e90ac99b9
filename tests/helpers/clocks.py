"""Systems whose clocks are set by a test."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import zmq

from barograph_agent.system.clock import Clock
from barograph_agent.system.network import Network
from barograph_agent.system.system import SYSTEM, System


class SetClock(Clock):
    """Shows what `read` returns, as Unix seconds and as monotonic ones."""

    def __init__(self, read: Callable[[], float]) -> None:
        self.now = self.monotonic = read  # type: ignore[method-assign]
        self.now_ns = self.monotonic_ns = lambda: int(read() * 1e9)  # type: ignore[method-assign]


class PassingClock(Clock):
    """Stands still but for those who sleep. passed: seconds since its begin."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.monotonic = lambda: self.passed  # type: ignore[method-assign]
        self.sleep = self._sleep  # type: ignore[method-assign]

    def _sleep(self, seconds: float) -> None:
        self.passed += seconds


def calendar_at(read: Callable[[], float]) -> System:
    """The real system but for its Unix time."""
    clock = Clock()
    clock.now = read  # type: ignore[method-assign]
    return SYSTEM._replace(clock=clock)


def system_at(read: Callable[[], float], context: zmq.Context[zmq.Socket[bytes]] | None = None) -> System:
    """The real system but for its clock, and connections in this context."""
    return SYSTEM._replace(clock=SetClock(read), network=Network(context), random=Random(1))
