"""The result of a replay: alarms and jobs, from the rows of `scores`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from barograph_lab.replay.trace import Trace


def summarize(trace: Trace, scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The alarms in the order of detection, each as last written, and the job. Times are Unix seconds.

    `onset_seconds` and `detected_seconds` count from the start of the trace.
    """
    start = trace.started_unix_ns * 1e-9
    alarms: dict[float, dict[str, Any]] = {}
    for row in scores:
        if math.isfinite(row["alarmed_at"]):
            # Dict order is the order of detection; the final row repeats the last alarm, with the runtime.
            alarms[row["alarmed_at"]] = {
                "job": row["job"],
                "onset": float(row["onset_at"]),
                "detected_at": float(row["alarmed_at"]),
                "recovered_at": _known(row["recovered_at"]),
                "onset_seconds": round(row["onset_at"] - start, 3),
                "detected_seconds": round(row["alarmed_at"] - start, 3),
                "state": row["state"],
                "slowdown": _known(row["slowdown"]),
                "cause": row["cause"],
                "nodes": json.loads(row["members"]),
                "sentence": row["sentence"],
                "basis": row["basis"],
                "evidence": json.loads(row["evidence"]),
            }
    final = scores[-1]
    job = {
        "job": final["job"],
        "workload": final["workload"],
        "state": final["state"],
        "score": _known(max((row["score"] for row in scores if math.isfinite(row["score"])), default=math.nan)),
        "basis": final["basis"],
        "windows": int(final["windows"]),
        "sentence": final["sentence"],
        "started_at": start,
    }
    return {"alarms": list(alarms.values()), "jobs": [job]}


def _known(value: float) -> float | None:
    """The value for JSON, which has no NaN."""
    return float(value) if math.isfinite(value) else None
