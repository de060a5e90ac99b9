"""Which features of a running program have settled: side files, looked at after twice the time again and again.

A feature that has the same value when the program is twice as old as it was is taken to keep it. Loop counters that
go on are not said before the end: what comes early is what the input has decided.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from barograph_agent.feature_files.side_file import SUFFIX, BadSideFile, Feature, SideFile, merge, read_side_file
from barograph_agent.reduce.ring_set import TableRows

FIRST_LOOK_SECONDS: Final = 0.2
FEATURES: Final = 2_000
"""Of one run on one host. Those that come first are told of."""
FILES: Final = 4_096
FILE_BYTES: Final = 32 * 2**20
ROWS: Final = 1_000
"""Rows of one message at most: a hundred kilobytes."""


class StableFeatures:
    """Reads the side files of one run and gives rows of `features`, without job, host and time.

    since: seconds of `clock`, which is CLOCK_MONOTONIC; files that began earlier are another run's. lost: what was not
    told of, by reason: values or files.
    """

    def __init__(self, directory: Path, since: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.lost: Counter[str] = Counter()
        self._directory = directory
        self._since = since
        self._clock = clock
        self._due = 0.0
        self._looked: dict[str, Feature] = {}
        self._told: dict[str, float] = {}

    def take(self, *, final: bool) -> Iterator[TableRows]:
        """Features that have settled since the last call; `final`: all that have another value than was told."""
        now = self._clock()
        if now < self._due and not final:
            return
        files = self._read(final=final)
        if not files:
            self._due = now + FIRST_LOOK_SECONDS
            return
        age = now - min(file.started_at for file in files)
        self._due = now + max(age, FIRST_LOOK_SECONDS)
        found = {name: self._known(name, one, age) for name, one in merge(files).items() if not math.isnan(one.value)}
        ripe = found if final else {n: one for n, one in found.items() if _same(self._looked.get(n), one)}
        self._looked = found
        fresh = self._fresh(ripe, final=final)
        holders = Counter(name for file in files for name in file.features)
        for start in range(0, len(fresh), ROWS):
            yield _rows({name: ripe[name] for name in fresh[start : start + ROWS]}, holders)

    def _read(self, *, final: bool) -> list[SideFile]:
        # Names alone, as it is done several times a second.
        names = os.listdir(self._directory) if self._directory.is_dir() else []  # noqa: PTH208
        paths = [self._directory / name for name in sorted(names) if name.endswith(SUFFIX)]
        files, unreadable = [], 0
        for path in paths[:FILES]:
            try:
                if path.stat().st_size > FILE_BYTES:
                    raise BadSideFile(f"{path} has more than {FILE_BYTES} bytes")
                files.append(read_side_file(path))
            except (BadSideFile, OSError):
                unreadable += 1  # it may be on its way: what counts is what cannot be read at the end
        files = [file for file in files if file.started_at >= self._since]
        if final:
            self.lost["files"] = unreadable + max(len(paths) - FILES, 0)
            self.lost["refused"] = sum(file.refused for file in files)
        return files

    def _known(self, name: str, one: Feature, age: float) -> Feature:
        """The feature with the time from which on it was known: noted by the program, else when it was first seen."""
        before = self._looked.get(name)
        if one.known_at > 0:
            return one
        return before if _same(before, one) and before is not None else Feature(one.value, age)

    def _fresh(self, ripe: dict[str, Feature], *, final: bool) -> list[str]:
        """Those that were told of with another value or not at all, as far as there is room; now they are."""
        fresh = [name for name, one in ripe.items() if name in self._told and self._told[name] != one.value]
        strange = [name for name in ripe if name not in self._told]
        room = FEATURES - len(self._told)
        if final:
            self.lost["beyond"] = max(len(strange) - room, 0)
        fresh += strange[:room]
        self._told.update({name: ripe[name].value for name in fresh})
        return fresh


def _same(before: Feature | None, now: Feature) -> bool:
    return before is not None and before.value == now.value


def _rows(features: dict[str, Feature], holders: Counter[str]) -> TableRows:
    values: dict[str, Any] = {
        "name": list(features),
        "value": np.array([one.value for one in features.values()]),
        "known_seconds": np.array([one.known_at for one in features.values()]),
        "processes": np.array([holders[name] for name in features]),
        "reduction": "max",
        "source": [":".join(name.split(":")[:3]) if ":" in name else "" for name in features],
    }
    return TableRows("features", len(features), values)
