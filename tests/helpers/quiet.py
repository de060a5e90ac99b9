"""Whether the machine was quiet while something ran: what others took of its cores, and how fast these were."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Final, NamedTuple, ParamSpec, TypeVar

from barograph.demo.interference import MAX_TAKEN, Interference

STEPS, REPEATS = 400_000, 20
SLOWEST: Final = 1.2
MAX_ATTEMPTS: Final = 3
P = ParamSpec("P")
T = TypeVar("T")


def repeated_if_disturbed(judge: Callable[P, T]) -> Callable[P, T]:
    """For what judges the speed of real programs: where it fails, and the kernel has counted that others took the cores
    meanwhile, it is done again. The last of MAX_ATTEMPTS counts, and so does one that nobody has disturbed."""

    @functools.wraps(judge)
    def repeated(*arguments: P.args, **named: P.kwargs) -> T:
        for left in reversed(range(MAX_ATTEMPTS)):
            others = Interference()
            try:
                return judge(*arguments, **named)
            except AssertionError as error:
                if not left or (taken := others.share()) <= MAX_TAKEN:
                    raise
                print(f"again, for others took {taken:.0%} of the cores: {error}")
        raise AssertionError

    return repeated


class Machine(NamedTuple):
    """Of the time of one run. taken: share of the cores' time that other programs and the hypervisor took. pace: time
    of fixed work right before or after it, the longer one, over the shortest of this process."""

    taken: float
    pace: float

    @property
    def quiet(self) -> bool:
        """Whether what is slow then is slow by itself."""
        return self.taken <= MAX_TAKEN and self.pace <= SLOWEST

    def __str__(self) -> str:
        return f"others took {self.taken:.1%}, fixed work {self.pace:.2f}x"


class Witness:
    """Watches the machine from its construction to `seen`. Asks the kernel, and nothing of what is tested."""

    _shortest = float("inf")

    def __init__(self) -> None:
        self._before = _fixed_work()
        self._others = Interference()

    def seen(self) -> Machine:
        """The machine since then."""
        taken = self._others.share()
        after = _fixed_work()
        Witness._shortest = min(Witness._shortest, self._before, after)
        return Machine(taken, max(self._before, after) / Witness._shortest)


def _fixed_work() -> float:
    """Seconds of a fixed computation, the best of REPEATS: a core that has slept is slower at first."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        sum(range(STEPS))
        found.append(time.perf_counter() - began)
    return min(found)
