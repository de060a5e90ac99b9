"""Time."""

from __future__ import annotations

import ctypes
import math
import time
from typing import Final

STEP_SECONDS: Final = 1.0
"""Between two steps of what runs beside ranks."""
STEP_SPREAD: Final = 0.25
"""Steps are later than at multiples of their distance by up to this share of it."""
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_LIBC: Final = ctypes.CDLL(None)
_TIMEX_WORDS, _MAX_ERROR = 26, 3
"""Words of `struct timex` of 64-bit Linux, and the place of `maxerror` among them, in microseconds."""
UNSYNCHRONIZED_SECONDS: Final = 16.0
"""The kernel's limit on the error of a clock that nothing synchronizes."""


class Clock:
    """The clocks of this node."""

    now = staticmethod(time.time)
    """Unix seconds."""
    now_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    """Seconds that never go back."""
    monotonic_ns = staticmethod(time.monotonic_ns)
    """The same in nanoseconds, CLOCK_MONOTONIC: the clock of rings."""
    processor_seconds = staticmethod(time.process_time)
    """Processor time that this process has used."""
    thread_seconds = staticmethod(time.thread_time)
    """Processor time that this thread has used."""
    sleep = staticmethod(time.sleep)

    def since_boot(self) -> float:
        """Seconds since the node was started, including those in which it was suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def error_seconds(self) -> float:
        """The largest error of `now` as far as the kernel knows (adjtimex(2)); UNSYNCHRONIZED_SECONDS at most."""
        words = (ctypes.c_long * _TIMEX_WORDS)()
        return float(words[_MAX_ERROR]) * 1e-6 if _LIBC.adjtimex(words) >= 0 else UNSYNCHRONIZED_SECONDS


def until_step(now: float, seconds: float = STEP_SECONDS) -> float:
    """Seconds until the next step. now: Unix seconds. seconds: between two steps, on average.

    Steps are a function of the time alone: nodes of a job take cores from its ranks at the same instants, as far as
    their clocks agree. What a node does at a period of its own, such as to stop a process each tenth of a second, is
    seen in all of its phases.
    """
    number = math.floor(now / seconds)
    steps = (seconds * (one + STEP_SPREAD * (one * _GOLDEN % 1)) for one in (number, number + 1))
    return next(step for step in steps if step > now) - now


CLOCK: Final = Clock()
