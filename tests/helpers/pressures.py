"""Rows of `pressures`, as a sidecar writes them."""

from __future__ import annotations

import math
from typing import Any

from barograph_alerts.attribution.kernel.pressure import COUNTS, GAUGES, NODE


def row(at: float, rank: int = NODE, host: str = "n1", seconds: float = 4.0, **values: Any) -> dict[str, Any]:
    """A row of the span that begins at `at`; figures are shares of it, or numbers per second."""
    of_node = rank == NODE
    rates = {
        "run_seconds": 1.0,
        "delay_seconds": 0.0,
        "stopped_seconds": 0.0,
        "blocked_seconds": 0.0,
        "major_faults": 0.0,
    }
    if of_node:
        rates |= {"steal_seconds": 0.0, "swapped_pages": 0.0}
    plain = {name: values.pop(name) for name in list(values) if name not in (*rates, "steal_seconds", "swapped_pages")}
    found = {name: values.get(name, rate) * seconds for name, rate in rates.items()}
    unknown: dict[str, Any] = {"steal_seconds": math.nan, "swapped_pages": -1, "memory_pressure": math.nan}
    return {
        "job": "lab/1.0.0", "host": host, "rank": rank, "began_at": at, "ended_at": at + seconds,
        "resident_bytes": 1, "core": -1 if of_node else 1, "process": "none", "process_of": "none", "process_core": -1,
        "process_seconds": math.nan, "cores": 1 if of_node else -1, "busy_seconds": math.nan, "cpu_pressure": math.nan,
        "io_pressure": math.nan, "available_bytes": -1, "accelerator_limited": math.nan,
        **dict.fromkeys((*COUNTS, *GAUGES), math.nan),
    } | unknown | found | plain  # fmt: skip


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [one[name] for one in rows] for name in rows[0]}
