"""Whether the machine was quiet while something ran: what others took of its cores, and how fast these were."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from barograph.demo.interference import MAX_TAKEN, Interference

STEPS, REPEATS = 400_000, 20
SLOWEST: Final = 1.2


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
