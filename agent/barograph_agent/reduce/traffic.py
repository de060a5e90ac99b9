"""Traffic of intervals: bytes of collectives, messages and their bytes, by class."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from barograph_agent.ring.reader import BYTES_UNKNOWN, STEP, Records

FIRST_SECONDS, LAST_SECONDS = 3.0, 30.0
"""Ages of a run between which its traffic is reported, at least once: later if it is slow."""
FIRST_REPORT: Final = 24
FACTOR: Final = 8
"""Totals are reported after 24, 192, 1536, ... intervals (24 x 8^n): the same for runs of the same work, whatever their
speed."""
MAX_CLASSES: Final = 256
MAX_REPORTED: Final = 32
"""Classes that are summed, the first of a run; and reported, those with most intervals."""


class Traffic(msgspec.Struct, array_like=True):
    """Totals of one class. bytes: of the collectives that end its intervals, 0 where unknown."""

    intervals: int = 0
    bytes: int = 0
    messages: int = 0
    message_bytes: int = 0


def add(traffic: dict[int, Traffic], classes: npt.NDArray[np.uint64], records: Records) -> None:
    """Add intervals to the totals by class id. classes: of each record."""
    ids, inverse = np.unique(classes, return_inverse=True)
    known = np.where(records["bytes"] == BYTES_UNKNOWN, 0, records["bytes"])
    counts = np.bincount(inverse, minlength=len(ids)).tolist()
    sent = records["op"] != STEP
    sums = (
        np.bincount(inverse, one, len(ids)).tolist()
        for one in (known, records["messages"] * sent, records["message_bytes"] * sent)
    )
    for class_id, count, size, messages, message_bytes in zip(ids.tolist(), counts, *sums, strict=True):
        if class_id not in traffic and len(traffic) >= MAX_CLASSES:
            continue
        total = traffic.setdefault(class_id, Traffic())
        total.intervals += count
        total.bytes += int(size)
        total.messages += int(messages)
        total.message_bytes += int(message_bytes)


def next_report(intervals: int) -> int:
    """Number of intervals after which traffic is reported next.

    >>> next_report(0), next_report(23), next_report(24), next_report(5000)
    (24, 24, 192, 12288)
    """
    report = FIRST_REPORT
    while report <= intervals:
        report *= FACTOR
    return report


class TrafficReport(msgspec.Struct, array_like=True):
    """Traffic of a run by class id after so many intervals, 0 if it has ended. at: Unix seconds."""

    intervals: int
    elapsed_seconds: float
    at: float
    traffic: dict[int, Traffic]


def report_of(traffic: dict[int, Traffic], intervals: int, elapsed_seconds: float, at: float) -> TrafficReport:
    """The classes with most intervals, as they are now."""
    most = sorted(traffic, key=lambda class_id: (-traffic[class_id].intervals, class_id))[:MAX_REPORTED]
    return TrafficReport(intervals, elapsed_seconds, at, {class_id: copy(traffic[class_id]) for class_id in most})


def rows(reports: Sequence[TrafficReport]) -> dict[str, Any]:
    """The columns of `signatures`, without the job."""
    each = [(report, class_id, total) for report in reports for class_id, total in report.traffic.items()]
    found: dict[str, Any] = {"class_id": [class_id for _, class_id, _ in each]}
    for name in Traffic.__struct_fields__:
        found[name] = [getattr(total, name) for _, _, total in each]
    found["elapsed_seconds"] = [report.elapsed_seconds for report, _, _ in each]
    found["time"] = [report.at for report, _, _ in each]
    found["look"] = [report.intervals for report, _, _ in each]
    return found
