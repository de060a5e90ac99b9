"""Detection of stable features in the side files of a running program.

Side files are read whenever the program's age has doubled. A feature with the same value in two consecutive readings is
stable. Growing counters are not stable before the end, so early rows are those determined by the input.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from barograph_agent.feature_files.side_file import SUFFIX, BadSideFile, Feature, SideFile, merge, read_side_file
from barograph_agent.protocol.rows import TableRows

FIRST_READ_SECONDS: Final = 0.2
MAX_FEATURES: Final = 2_000
"""Limit per run and host; further features are counted as lost."""
MAX_FILES: Final = 4_096
MAX_BYTES: Final = 64 * 2**20
"""Limit of one reading of all files; those beyond are counted as lost."""
MAX_ROWS: Final = 1_000
"""Limit per message: about 100 KB."""


class StableFeatures:
    """Source of rows of `features`, and of `events` of what is lost, from the side files of one run.

    since: seconds of CLOCK_MONOTONIC; earlier files belong to another run. lost: number of values or files that are not
    reported, by reason.
    """

    def __init__(self, directory: Path, since: float) -> None:
        self.lost: Counter[str] = Counter()
        self._directory = directory
        self._since = since
        self._due = 0.0
        self._seen: dict[str, Feature] = {}
        self._reported: dict[str, float] = {}

    def read(self, now: float, *, final: bool) -> Iterator[TableRows]:
        """Features stable since the last call. now: seconds of CLOCK_MONOTONIC.

        final: all whose value differs from the last one reported, and what was lost.
        """
        yield from self._features(now, final=final)
        for reason, count in self.lost.items():
            if final and count:
                yield TableRows("events", 1, {"kind": f"features-{reason}", "rows": count, "detail": ""})

    def _features(self, now: float, *, final: bool) -> Iterator[TableRows]:
        if now < self._due and not final:
            return
        files = self._read_files(final=final)
        if not files:
            self._due = now + FIRST_READ_SECONDS
            return
        age = now - min(file.started_at for file in files)
        self._due = now + max(age, FIRST_READ_SECONDS)
        found = {name: self._known(name, one, age) for name, one in merge(files).items() if math.isfinite(one.value)}
        stable = found if final else {n: one for n, one in found.items() if _same(self._seen.get(n), one)}
        self._seen = found
        fresh = self._fresh(stable, final=final)
        holders = Counter(name for file in files for name in file.features)
        for start in range(0, len(fresh), MAX_ROWS):
            yield _rows({name: stable[name] for name in fresh[start : start + MAX_ROWS]}, holders)

    def _read_files(self, *, final: bool) -> list[SideFile]:
        # listdir, because this runs several times a second.
        names = os.listdir(self._directory) if self._directory.is_dir() else []  # noqa: PTH208
        paths = [self._directory / name for name in sorted(names) if name.endswith(SUFFIX)]
        files, unreadable, left = [], 0, MAX_BYTES
        for path in paths[:MAX_FILES]:
            try:
                files.append(read_side_file(path, left))
                left -= path.stat().st_size
            except (BadSideFile, OSError):
                unreadable += 1  # may be incomplete: only the count at the end is reported
        files = [file for file in files if file.started_at >= self._since]
        if final:
            self.lost["files"] = unreadable + max(len(paths) - MAX_FILES, 0)
            self.lost["refused"] = sum(file.refused for file in files)
        return files

    def _known(self, name: str, one: Feature, age: float) -> Feature:
        """The feature with the time of its last change: as reported by the program, else when it was first read."""
        before = self._seen.get(name)
        if one.known_at > 0:
            return one
        return before if _same(before, one) and before is not None else Feature(one.value, age)

    def _fresh(self, stable: dict[str, Feature], *, final: bool) -> list[str]:
        """Names of features not yet reported with this value, up to the limit; marks them as reported."""
        fresh = [name for name, one in stable.items() if name in self._reported and self._reported[name] != one.value]
        unknown = [name for name in stable if name not in self._reported]
        room = MAX_FEATURES - len(self._reported)
        if final:
            self.lost["beyond"] = max(len(unknown) - room, 0)
        fresh += unknown[:room]
        self._reported.update({name: stable[name].value for name in fresh})
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
