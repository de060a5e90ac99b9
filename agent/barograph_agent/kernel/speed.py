"""How fast the node does fixed work, which no counter of its kernel tells."""

from __future__ import annotations

import math
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from barograph_agent.system.clock import Clock
from barograph_agent.system.processes import Processes

STEPS: Final = 500
"""Multiplications of the interpreter: some 15 microseconds."""
TRIES: Final = 5
READS: Final = 1000
"""Reads of memory, each at an address that the one before it tells."""
CHAIN: Final = 2**20
"""Addresses, of 4 bytes each: more than a core's own caches hold."""
SLOWER_COMPUTING: Final = 1.1
SLOWER_MEMORY: Final = 1.25
"""Times as long as usual: what is less differs between looks at a node where nothing changes."""
_FACTOR: Final = 1_664_525
_ADDED: Final = 1_013_904_223
"""Of a linear congruential generator, which visits all addresses (Knuth, TAOCP 2, 3.2.1.2, theorem A)."""


class Speed(NamedTuple):
    """Processor seconds that fixed work takes: a computation, and reads of memory. NaN if unknown."""

    compute_seconds: float = math.nan
    memory_seconds: float = math.nan

    def differs_from(self, usual: Speed) -> bool:
        """Whether one of them takes longer by so much that it matters."""
        return (
            self.compute_seconds > SLOWER_COMPUTING * usual.compute_seconds
            or self.memory_seconds > SLOWER_MEMORY * usual.memory_seconds
        )

    def mixed(self, other: Speed, share: float) -> Speed:
        """The mean with another speed, which has this share; one of them if the other is unknown."""
        return Speed(*(mixed(a, b, share) for a, b in zip(self, other, strict=True)))


class SpeedProbe:
    """Does a little fixed work now and then, on a core of a rank that runs.

    An idle core may be slow: its clock is low, or a hypervisor has put it beside another. Processor time does not
    contain the time in which other processes had the core. It does contain what a slower clock, the other thread of the
    core, a hypervisor, and others in shared caches and on the way to the memory cost.
    """

    def __init__(self, clock: Clock, processes: Processes) -> None:
        self._clock = clock
        self._processes = processes
        self._chain: memoryview | None = None
        self._at = 0
        self._measured: list[Speed] = []

    def measure(self, core: int) -> None:
        """Do the work once on this core, which takes about half a millisecond; nothing where that is not allowed."""
        if self._chain is None:
            self._chain = _chain()  # not before there are ranks: it takes some milliseconds
        try:
            with self._processes.on_core(core):
                # The first of several also loads what others have driven from the caches.
                self._measured.append(Speed(min(self._compute() for _ in range(TRIES)), self._read(self._chain)))
        except OSError:
            return

    def take(self) -> Speed:
        """The speed since the last call: the fastest computation, and the median of the reads."""
        measured, self._measured = self._measured, []
        if not measured:
            return Speed()
        return Speed(min(one.compute_seconds for one in measured), median(one.memory_seconds for one in measured))

    def _compute(self) -> float:
        began = self._clock.thread_seconds()
        total = 0
        for number in range(STEPS):
            total += number * number
        return self._clock.thread_seconds() - began

    def _read(self, chain: memoryview) -> float:
        at = self._at
        began = self._clock.thread_seconds()
        for _ in range(READS):
            at = chain[at]
        self._at = at
        return self._clock.thread_seconds() - began


def _chain() -> memoryview:
    following = (np.arange(CHAIN, dtype=np.int64) * _FACTOR + _ADDED) & (CHAIN - 1)
    return following.astype(np.int32).data


def mixed(one: float, other: float, share: float) -> float:
    """The mean with another figure, which has this share; one of them if the other is NaN."""
    if math.isnan(one + other):
        return other if math.isnan(one) else one
    return (1 - share) * one + share * other
