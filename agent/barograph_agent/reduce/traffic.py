"""What intervals communicate: bytes of collectives, messages and their bytes, by class."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from barograph_agent.ring.reader import BYTES_UNKNOWN, STEP, Records

LOOKS: Final = (3.0, 10.0, 30.0)
"""Seconds of a run after which its traffic so far is reported."""
MIN_INTERVALS: Final = 24
"""A run with fewer intervals by the last of these is reported once more, when it has had as many."""
REPORTS: Final = len(LOOKS) + 1
"""Reports of a run at most."""
CLASSES: Final = 256
REPORTED: Final = 32
"""Classes that are summed, the first; and of these reported, those with most intervals."""


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
        if class_id not in traffic and len(traffic) >= CLASSES:
            continue
        total = traffic.setdefault(class_id, Traffic())
        total.intervals += count
        total.bytes += int(size)
        total.messages += int(messages)
        total.message_bytes += int(message_bytes)


def passed(elapsed_seconds: float, traffic: dict[int, Traffic]) -> int:
    """How many reports are due by this age of a run: one for each of LOOKS, and a last one.

    >>> passed(10.5, {7: Traffic(3)}), passed(300.0, {7: Traffic(3)}), passed(300.0, {7: Traffic(24)})
    (2, 3, 4)
    """
    looks = sum(seconds <= elapsed_seconds for seconds in LOOKS)
    return looks + (looks == len(LOOKS) and sum(one.intervals for one in traffic.values()) >= MIN_INTERVALS)


def rows(traffic: dict[int, Traffic], elapsed_seconds: float, at: float) -> dict[str, Any]:
    """The columns of `signatures`, without the job."""
    most = sorted(traffic, key=lambda class_id: (-traffic[class_id].intervals, class_id))[:REPORTED]
    found: dict[str, Any] = {"class_id": most}
    for name in Traffic.__struct_fields__:
        found[name] = [getattr(traffic[class_id], name) for class_id in most]
    return found | {"elapsed_seconds": elapsed_seconds, "at": at}
