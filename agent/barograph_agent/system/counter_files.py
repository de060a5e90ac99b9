"""Files of /sys with numbers, which stay open: a read is one call of the kernel."""

from __future__ import annotations

import math
import os
import re
from glob import glob
from typing import Final

MAX_FILES: Final = 512
MAX_MATCHES: Final = 16
MAX_NUMBER: Final = 2**53
"""Exact as a float; drivers show -1 as 2**64 - 1."""
_BYTES: Final = 64
_NUMBER: Final = re.compile(rb"-?[0-9]+(\.[0-9]+)?")


class CounterFiles:
    """Reads numbers by the path of their file. root: what precedes /sys. At most MAX_FILES; others are unknown."""

    def __init__(self, root: str = "") -> None:
        self.root = root
        self._descriptors: dict[str, int] = {}
        """Of each file; -1 for one that cannot be opened, which is not tried again."""

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            if descriptor >= 0:
                os.close(descriptor)

    def number(self, path: str) -> float:
        """The first number in a file, as in `90049@1675489372.7`, `100 Gb/sec (4X EDR)` or `ue: 0`.

        NaN where there is none from 0 to MAX_NUMBER.
        """
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            descriptor = self._open(path)
        if descriptor < 0:
            return math.nan
        try:
            found = _NUMBER.search(os.pread(descriptor, _BYTES, 0))
        except OSError:
            return math.nan
        number = float(found[0]) if found is not None else math.nan
        return number if 0 <= number <= MAX_NUMBER else math.nan

    def matching(self, pattern: str) -> list[str]:
        """Paths that match a pattern, sorted, MAX_MATCHES at most: a driver may ask its firmware for each number."""
        found = sorted(glob(self.root + pattern))  # noqa: PTH207
        return [path.removeprefix(self.root) for path in found[:MAX_MATCHES]]

    def _open(self, path: str) -> int:
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self.root + path, flags) if len(self._descriptors) < MAX_FILES else -1
        except OSError:
            descriptor = -1
        self._descriptors[path] = descriptor
        return descriptor
