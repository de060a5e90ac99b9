"""Accelerators of AMD, as their driver shows them in /sys."""

from __future__ import annotations

import math
from collections.abc import Sequence

from barograph_agent.kernel.hardware.source import CounterSource, Figures
from barograph_agent.system.processes import Processes

_DEVICE = "/sys/class/drm/card*/device"


class AmdSource:
    """The lowest clock and the highest temperature of those that are busy, and uncorrected errors of all."""

    def __init__(self, processes: Processes) -> None:
        self._errors = CounterSource(processes, "accelerator_errors", f"{_DEVICE}/ras/umc_err_count")
        self._monitors = processes.matching(f"{_DEVICE}/hwmon/hwmon*")
        self._number = processes.number

    def read(self, cores: Sequence[int]) -> Figures:
        """As of a source; of nothing where none is busy."""
        busy = [one for one in self._monitors if self._number(f"{one}/../../gpu_busy_percent") > 0]
        clock = min((self._number(f"{one}/freq1_input") for one in busy), default=math.nan)
        heat = max((self._number(f"{one}/temp1_input") for one in busy), default=math.nan)
        return {"accelerator_clock_hz": clock, "accelerator_celsius": 1e-3 * heat} | self._errors.read() if busy else {}
