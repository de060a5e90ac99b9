"""Rows of `pressures`: what a rank or a node has lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barograph_alerts.attribution.cause import Beside

NODE: Final = -1
"""The rank of rows about a whole node."""
FIGURES: Final = ("run", "delay", "stopped", "blocked", "faults", "memory", "swapped", "steal", "compute", "reading",
                  "measured", "transfer", "transferred")  # fmt: skip
"""What is summed up over rows."""


class Pressure(NamedTuple):
    """One row: what a rank or a node has lost, in seconds, NaN if unknown. steal: mean over the node's cores.

    compute, reading: what fixed work took on the node, times the length of the span. measured: that length where it is
    known, else 0. transfer, transferred: the same of the time in which a megabyte is in flight.
    """

    host: str
    rank: int
    began_at: float
    ended_at: float
    run: float
    delay: float
    stopped: float
    blocked: float
    faults: float
    memory: float
    swapped: float
    steal: float
    compute: float
    reading: float
    measured: float
    transfer: float
    transferred: float
    beside: Beside | None
    beside_seconds: float


def pressure(row: Mapping[str, Any], *, names_others: bool, ahead: float = 0.0) -> Pressure:
    """From a row of the log. names_others: whether to name processes of other users. ahead: of the node's clock, in
    seconds, which is subtracted from its times.
    """
    cores, span = max(int(row["cores"]), 1), float(row["ended_at"]) - float(row["began_at"])
    owner = str(row["process_of"])
    name = "" if owner == "other" and not names_others else str(row["process"])
    core, on = int(row["core"]), int(row["process_core"])
    return Pressure(
        host=str(row["host"]),
        rank=int(row["rank"]),
        began_at=float(row["began_at"]) - ahead,
        ended_at=float(row["ended_at"]) - ahead,
        run=float(row["run_seconds"]),
        delay=float(row["delay_seconds"]),
        stopped=float(row["stopped_seconds"]),
        blocked=float(row["blocked_seconds"]),
        faults=float(max(row["major_faults"], 0)),
        memory=float(row["memory_pressure"]) * span,
        swapped=float(max(row["swapped_pages"], 0)),
        steal=float(row["steal_seconds"]) / cores,
        compute=float(row["compute_seconds"]) * span,
        reading=float(row["memory_seconds"]) * span,
        measured=span if math.isfinite(row["compute_seconds"]) else 0.0,
        transfer=float(row["transfer_seconds"]) * span,
        transferred=span if math.isfinite(row["transfer_seconds"]) else 0.0,
        beside=Beside("" if name == "none" else name, owner, on, on == core) if owner != "none" else None,
        beside_seconds=float(row["process_seconds"]),
    )
