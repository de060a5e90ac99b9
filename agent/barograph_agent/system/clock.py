"""Time."""

from __future__ import annotations

import time
from typing import Final


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


CLOCK: Final = Clock()
