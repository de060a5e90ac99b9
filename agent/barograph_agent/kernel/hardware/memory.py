"""Errors of memory that its controllers have seen, corrected or not (EDAC)."""

from __future__ import annotations

from barograph_agent.kernel.hardware.source import CounterSource
from barograph_agent.system.counter_files import CounterFiles


class MemorySource(CounterSource):
    """`memory_errors`."""

    def __init__(self, files: CounterFiles) -> None:
        super().__init__(files, "memory_errors", "/sys/devices/system/edac/mc/mc*/[cu]e_count")
