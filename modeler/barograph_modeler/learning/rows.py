"""Rows that the learner writes to the log."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np

from barograph_collector.daemon.runner import Output
from barograph_modeler.bands.regime import Regime
from barograph_modeler.maxima.band import Band
from barograph_modeler.pace.pace import Pace


def bands_output(workload: str, bands: list[tuple[int, str, Band]], runs: int, now: float) -> Output:
    """Rows of `bands` for (class id, kind, band)."""
    gevs = [band.gev for _, _, band in bands]
    columns = {
        "workload": workload,
        "class_id": np.array([class_id for class_id, _, _ in bands], dtype=np.uint64),
        "kind": [kind for _, kind, _ in bands],
        "method": [band.method for _, _, band in bands],
        "samples": np.array([band.samples for _, _, band in bands]),
        "runs": runs,
        "lower_seconds": np.array([band.lower for _, _, band in bands]),
        "expected_seconds": np.array([band.expected for _, _, band in bands]),
        "upper_seconds": np.array([band.upper for _, _, band in bands]),
        "shape": np.array([gev.shape if gev else math.nan for gev in gevs]),
        "location_seconds": np.array([gev.location if gev else math.nan for gev in gevs]),
        "scale_seconds": np.array([gev.scale if gev else math.nan for gev in gevs]),
        "fitted_at": now,
    }
    return Output("bands", len(bands), columns)


def pace_output(workload: str, pace: Pace, now: float) -> Output:
    """The row of `paces`."""
    return Output("paces", 1, {"workload": workload, **pace.columns(), "fitted_at": now})


def drift_output(workload: str, class_id: int, regime: Regime, now: float) -> Output:
    """The row of `events` for a class whose level has changed."""
    moments = regime.moments
    detail = {
        "reason": "drift",
        "class": f"{class_id:016x}",
        "since": _json_number(regime.since),
        "until": _json_number(regime.until),
        "old_mean_seconds": _json_number(moments.mean),
        "new_mean_seconds": _json_number(regime.next_level),
        "old_deviation_seconds": _json_number(math.sqrt(moments.variance)),
        "old_skewness": _json_number(moments.skewness),
        "old_lower_seconds": _json_number(regime.lower),
        "old_upper_seconds": _json_number(regime.upper),
    }
    return _event(workload, moments.count, detail, now)


def accepted_output(workload: str, old: list[float], new: list[float], now: float) -> Output:
    """The row of `events` for a workload whose withheld runs became its history. old, new: runtimes in seconds."""
    detail = {
        "reason": "accepted",
        "withheld_runs": len(new),
        "old_mean_seconds": _json_number(float(np.mean(old)) if old else math.nan),
        "new_mean_seconds": _json_number(float(np.mean(new)) if new else math.nan),
    }
    return _event(workload, len(old), detail, now)


def _event(workload: str, values: int, detail: Mapping[str, object], now: float) -> Output:
    row = {"source": workload, "kind": "regime-closed", "rows": values, "time": now}
    return Output("events", 1, {**row, "detail": json.dumps(detail, separators=(",", ":"))})


def _json_number(value: float) -> float | None:
    """The value to 9 digits; None for NaN, which JSON lacks."""
    return float(f"{value:.9g}") if math.isfinite(value) else None
