"""A trace: the records of each rank of one run, in one .npz file."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SYNCHRONIZING: Final = range(8, 64)
"""Codes of synchronizing operations. Others are Init (1), Finalize (2) and, from 64, those such as Bcast."""
WORKER: Final = ("cpu_ns", "update_ns", "bytes")
"""Arrays of a training's worker: all or none."""

Ints = npt.NDArray[np.int64]


class TraceError(ValueError):
    """A file that is no trace. The text states the file, what was found and what was expected."""


@dataclass(frozen=True)
class RankTrace:
    """The records of one rank, one value per collective, in order. Times are nanoseconds.

    enter, exit: since rank 0's start. p2p: time in point-to-point calls since the previous exit; None if not recorded.
    used, updated, bytes: of a training's worker, processor time and time of updates since the previous exit, and size
    of the parameters; None of another program.
    """

    operation: Ints
    enter: Ints
    exit: Ints
    p2p: Ints | None
    used: Ints | None = None
    updated: Ints | None = None
    bytes: Ints | None = None

    @property
    def synchronizing(self) -> npt.NDArray[np.bool_]:
        """Which of the collectives are synchronizing."""
        return (self.operation >= SYNCHRONIZING.start) & (self.operation < SYNCHRONIZING.stop)


@dataclass(frozen=True)
class Trace:
    """One run. started_unix_ns: start of rank 0. size: its MPI ranks, not all of which need be recorded.

    path: the call path of each collective of rank 0, as an index into names. injections: deliberate disturbances, from
    and to in seconds since the start; printed only.
    """

    file: Path
    app: str
    size: int
    started_unix_ns: int
    ranks: Mapping[int, RankTrace]
    path: Ints
    names: tuple[str, ...]
    injections: tuple[tuple[float, float], ...] = field(default=())


def read_trace(file: Path) -> Trace:
    """Read a trace in the layout of docs/reference/traces.md. Raises TraceError and OSError."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise TraceError(f"trace {file}: {error}, expected an .npz file of plain arrays") from None
    except AttributeError:
        raise TraceError(f"trace {file}: a single array, expected an .npz file") from None
    meta = _meta(file, arrays)
    numbers = sorted(int(name.removeprefix("gap_ns_")) for name in arrays if name.removeprefix("gap_ns_").isdecimal())
    if 0 not in numbers:
        raise TraceError(f"trace {file}: no array 'gap_ns_0', expected what rank 0 recorded")
    ranks = {number: _rank(file, arrays, number) for number in numbers}
    path, names = _paths(file, arrays, ranks[0])
    return Trace(
        file=file,
        app=Path(str(meta.get("exe") or str(meta.get("cmd") or "unknown").split()[0])).name,
        size=_number(file, meta, "size", max(numbers) + 1),
        started_unix_ns=_number(file, meta, "t0_real_ns", 0),
        ranks=ranks,
        path=path,
        names=names,
        injections=_injections(meta),
    )


def _meta(file: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    try:
        meta = json.loads(str(arrays["meta"])) if "meta" in arrays else {}
    except ValueError:
        meta = None
    if not isinstance(meta, dict):
        raise TraceError(f"trace {file}: 'meta' is {str(arrays['meta'])[:80]!r}, expected a JSON object")
    return meta


def _number(file: Path, meta: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = meta.get(name, otherwise)
    if not isinstance(value, int) or value < 0:
        raise TraceError(f"trace {file}: {name} is {value!r}, expected a whole number of at least 0")
    return value


def _rank(file: Path, arrays: Mapping[str, Any], number: int) -> RankTrace:
    gap = _array(file, arrays, f"gap_ns_{number}", None)
    duration = _array(file, arrays, f"dur_ns_{number}", gap.size)
    operations = f"op_{number}" if f"op_{number}" in arrays else "op_0"
    # If only rank 0's operations were recorded, the other ranks had the same.
    operation = _array(file, arrays, operations, gap.size)
    p2p = _array(file, arrays, f"p2p_ns_{number}", gap.size) if f"p2p_ns_{number}" in arrays else None
    names = [f"{name}_{number}" for name in WORKER if f"cpu_ns_{number}" in arrays]
    worker = [_array(file, arrays, name, gap.size) for name in names]
    first = int(_array(file, arrays, f"t_first_ns_{number}", 1)[0]) if f"t_first_ns_{number}" in arrays else 0
    if gap.size and (min(gap[1:].min(initial=0), duration.min()) < 0):
        raise TraceError(f"trace {file}: rank {number} has a negative duration, expected nanoseconds of at least 0")
    between = gap.copy()
    between[:1] = 0
    ends = first + np.cumsum(between + duration)
    return RankTrace(operation, ends - duration, ends, p2p, *worker)


def _array(file: Path, arrays: Mapping[str, Any], name: str, size: int | None) -> Ints:
    values = arrays.get(name)
    if values is None:
        raise TraceError(f"trace {file}: no array {name!r}, expected one")
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise TraceError(f"trace {file}: {name!r} has shape {values.shape} of {values.dtype}, expected whole numbers")
    if size is not None and values.size != size:
        raise TraceError(f"trace {file}: {name!r} has {values.size} values, expected {size}")
    return np.asarray(values, dtype=np.int64)


def _paths(file: Path, arrays: Mapping[str, Any], rank: RankTrace) -> tuple[Ints, tuple[str, ...]]:
    """Call paths, named alike in all runs of one program.

    `ctx` numbers the paths of one file in arbitrary order. So a path is named by its site and the index of rank 0's
    first synchronizing collective on it, which is the same in all runs.
    """
    size = rank.operation.size
    site = _array(file, arrays, "site", size) if "site" in arrays else rank.operation
    context = _array(file, arrays, "ctx", size) if "ctx" in arrays else np.zeros(size, np.int64)
    texts = [str(text) for text in arrays["sites"]] if "sites" in arrays else []
    order = np.cumsum(rank.synchronizing) - 1
    pairs, first, path = np.unique(np.stack([site, context]), axis=1, return_index=True, return_inverse=True)
    names = []
    for number, at in zip(pairs[0].tolist(), first.tolist(), strict=True):
        text = texts[number] if 0 <= number < len(texts) else f"site {number}"
        names.append(f"{text} < path {order[at]}" if "ctx" in arrays else text)
    return np.asarray(path, dtype=np.int64).reshape(-1), tuple(names)


def _injections(meta: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    start = meta.get("t0_mono_ns", 0)
    found = []
    for one in meta.get("injections") or ():
        if isinstance(one, dict) and {"start_mono_ns", "stop_mono_ns"} <= one.keys():
            found.append(((one["start_mono_ns"] - start) * 1e-9, (one["stop_mono_ns"] - start) * 1e-9))
    return tuple(found)
