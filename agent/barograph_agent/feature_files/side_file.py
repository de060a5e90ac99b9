"""Side files: features reported by a running program, one slot per feature, readable at any time.

Written to the folder $BAROGRAPH_FEATURES by `barograph_features.h`, one per process and source file, and by
`barograph_agent.features()`, one per process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from barograph_agent.system.disk import DISK

MAGIC: Final = b"BAROFEAT"
VERSION: Final = 1
MAX_PROBES: Final = 1_000_000
MAX_BYTES: Final = 32 * 2**20
HEADER: Final = np.dtype([
    ("magic", "S8"), ("version", "<u4"), ("probes", "<u4"), ("started_ns", "<u8"), ("ended_ns", "<u8"), ("pid", "<u4"),
    ("names_bytes", "<u4"), ("refused", "<u8"), ("reserved", "<u8"),
])  # fmt: skip
SUFFIX: Final = ".features"
SLOT: Final = np.dtype([("value", "<f8"), ("count", "<u8"), ("last_ns", "<u8")])


class BadSideFile(ValueError):
    """Not a valid side file. The text names the file and what was expected."""


class Feature(NamedTuple):
    """One feature. known_at: seconds from the program's start to the last change; 0 if no value was reported."""

    value: float
    known_at: float


class SideFile(NamedTuple):
    """Content of a side file. Times are seconds of CLOCK_MONOTONIC, None if not known.

    refused: number of ignored values: invalid name, not a finite number, or too many names.
    """

    pid: int
    started_at: float
    ended_at: float | None
    features: dict[str, Feature]
    refused: int = 0


def read_pid(path: Path) -> int:
    """Id of the process that writes a side file. Raises BadSideFile and OSError."""
    return int(_header(path, DISK.read(path, MAX_BYTES))["pid"])


def read_side_file(path: Path, most: int = MAX_BYTES) -> SideFile:
    """The current content of a side file of at most `most` bytes. Raises BadSideFile and OSError.

    The value of features `...:value:...`, `...:bytes:...` and `...:ranks:...` and of those named by the program is the
    last one reported, NaN if there is none; that of others is their count.
    """
    data = DISK.read(path, most)
    header = _header(path, data)
    if header["version"] != VERSION:
        raise BadSideFile(f"{path} has version {header['version']}, expected {VERSION}")
    probes, names_at = int(header["probes"]), HEADER.itemsize + int(header["probes"]) * SLOT.itemsize
    if probes > MAX_PROBES or len(data) < names_at + int(header["names_bytes"]):
        raise BadSideFile(f"{path} has {len(data)} bytes, too few for {probes} features and their names")
    slots = np.frombuffer(data, SLOT, probes, HEADER.itemsize)
    text = data[names_at : names_at + int(header["names_bytes"])].rstrip(b"\0").decode(errors="replace")
    names = text.splitlines()
    if len(names) != probes:
        raise BadSideFile(f"{path} has {len(names)} names for {probes} features, expected as many")
    started = int(header["started_ns"])
    features = {}
    for name, slot in zip(names, slots, strict=True):
        value = float(slot["count"])
        if ":" not in name or name.split(":")[3:4] in (["value"], ["bytes"], ["ranks"]):
            value = float(slot["value"]) if slot["count"] else float("nan")
        last = int(slot["last_ns"])
        features[name] = Feature(value, max(last - started, 0) / 1e9 if last else 0.0)
    ended = int(header["ended_ns"])
    ended_at = ended / 1e9 if ended else None
    return SideFile(int(header["pid"]), started / 1e9, ended_at, features, int(header["refused"]))


def _header(path: Path, data: bytes) -> np.void:
    if not data.startswith(MAGIC):
        raise BadSideFile(f"{path} begins with {data[:8]!r}, expected {MAGIC!r}")
    if len(data) < HEADER.itemsize:
        raise BadSideFile(f"{path} has {len(data)} bytes, expected at least {HEADER.itemsize}")
    header: np.void = np.frombuffer(data, HEADER, 1)[0]
    return header


def merge(files: list[SideFile]) -> dict[str, Feature]:
    """The features of a run: the largest value over its processes, NaN without one, and the latest time.

    The largest, because the slowest process determines the runtime.
    """
    merged: dict[str, Feature] = {}
    for file in files:
        for name, one in file.features.items():
            other = merged.get(name, one)
            merged[name] = Feature(float(np.fmax(one.value, other.value)), max(one.known_at, other.known_at))
    return merged
