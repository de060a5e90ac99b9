"""Clocks of cores, and how often they were throttled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from barograph_agent.kernel.hardware.source import CounterSource, Figures
from barograph_agent.system.processes import Processes

MAX_KHZ: Final = 1e9
MAX_CORES: Final = 32
"""Cores read at once, spread evenly over those of ranks: some 3 us each."""
_CORE: Final = "/sys/devices/system/cpu/cpu{}/"


class CoreSource:
    """`clock_hz`, the lower quartile over cores on which ranks run: a rank on a slow one delays all, and a core that
    was just woken is slow for a moment. `throttles`, of these cores and their packages, by heat.

    An idle core lowers its clock: cores of ranks that wait asleep must not be among those that are read.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._throttles = CounterSource(processes, "throttles")
        self._packages: dict[int, float] = {}

    def read(self, cores: Sequence[int]) -> Figures:
        """As of a source."""
        cores = cores[:: -(-len(cores) // MAX_CORES) or 1]
        clocks = [self._processes.number(_CORE.format(core) + "cpufreq/scaling_cur_freq") for core in cores]
        known = sorted(clock for clock in clocks if 0 < clock < MAX_KHZ)
        counts = [_CORE.format(core) + "thermal_throttle/core_throttle_count" for core in cores]
        counts += [_CORE.format(core) + "thermal_throttle/package_throttle_count" for core in self._firsts(cores)]
        # The kernel counts in kHz.
        clock = 1e3 * known[(len(known) - 1) // 4] if known else math.nan
        return {"clock_hz": clock} | self._throttles.read((), *counts)

    def _firsts(self, cores: Sequence[int]) -> list[int]:
        """A core of each package: all of them show the count of their package."""
        for core in {*cores} - self._packages.keys():
            self._packages[core] = self._processes.number(_CORE.format(core) + "topology/physical_package_id")
        return list({self._packages[core]: core for core in reversed(cores)}.values())
