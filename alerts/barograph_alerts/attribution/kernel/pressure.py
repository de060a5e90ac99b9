"""Rows of `pressures`: what a rank or a node has lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_alerts.attribution.cause import Beside

NODE: Final = -1
"""The rank of rows about a whole node."""
COUNTS: Final = ("throttles", "memory_errors", "link_errors", "accelerator_errors")
GAUGES: Final = ("clock_hz", "transfer_seconds", "link_rate", "accelerator_clock_hz", "accelerator_celsius")
_NAMES: Final = ("run", "faults", "swapped", "delay", "stopped", "blocked", "memory", "steal", *COUNTS,
                 *GAUGES, *(f"known {name}" for name in GAUGES))  # fmt: skip
FIGURES: Final = {name: place for place, name in enumerate(_NAMES)}
"""What is summed up over rows, by its place, in seconds but for counts. steal: mean over the node's cores.

Of GAUGES the product with the length of the span, and that length where they are known.
"""
LIMITED: Final = slice(FIGURES["delay"], FIGURES["steal"] + 1)
"""Those that are no longer than their span."""
WORK: Final = slice(FIGURES["throttles"], len(FIGURES))


class Pressure(NamedTuple):
    """One row: what a rank or a node has lost, NaN if unknown. figures: those of FIGURES."""

    host: str
    rank: int
    began_at: float
    ended_at: float
    figures: npt.NDArray[np.float64]
    beside: Beside | None
    beside_seconds: float


def pressure(row: Mapping[str, Any], *, names_others: bool, ahead: float = 0.0) -> Pressure:
    """From a row of the log. names_others: whether to name processes of other users. ahead: of the node's clock, in
    seconds, which is subtracted from its times.
    """
    began_at, ended_at = float(row["began_at"]) - ahead, float(row["ended_at"]) - ahead
    span = float(row["ended_at"]) - float(row["began_at"])
    owner = str(row["process_of"])
    name = "" if owner == "other" and not names_others else str(row["process"])
    core, on = int(row["core"]), int(row["process_core"])
    lost = [float(row[f"{name}_seconds"]) for name in ("delay", "stopped", "blocked")]
    gauges = [float(row[name]) * span for name in GAUGES]
    figures = np.array([
        float(row["run_seconds"]), max(row["major_faults"], 0), max(row["swapped_pages"], 0), *lost,
        float(row["memory_pressure"]) * span, float(row["steal_seconds"]) / max(int(row["cores"]), 1),
        *(float(row[name]) for name in COUNTS), *gauges, *(span if math.isfinite(one) else 0.0 for one in gauges),
    ])  # fmt: skip
    beside = Beside("" if name == "none" else name, owner, on, on == core) if owner != "none" else None
    return Pressure(
        str(row["host"]), int(row["rank"]), began_at, ended_at, figures, beside, float(row["process_seconds"])
    )
