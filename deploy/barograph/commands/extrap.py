"""Runs of one application as measurements in Extra-P's JSON Lines format.

Each line is one measurement: `{"params": {"p": 64, "x": 4.0}, "callpath": "run", "metric": "runtime", "value": 12.3}`.
Lines with equal parameters are repetitions. `p` is the number of ranks. The other parameters are those `--param`s that
are numeric in all runs and vary. The call path `run` is the whole run; `run->CLASS` is the time spent in one class of
intervals, named by the call site that ends them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from barograph.views.collectors.joint_query import joined
from barograph.views.log import Row, rows_of
from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import LogReader, ReadRefused

_RUNS: Final = """
SELECT job, any_value(ranks) AS ranks, any_value(params) AS params, any_value(runtime_seconds) AS value
FROM runs JOIN jobs USING (job)
WHERE app = '{app}' AND exit_status = 0 AND ranks > 0 AND runs.ended_at >= {since} GROUP BY job ORDER BY job
"""
_CLASSES: Final = """
SELECT job, class_id, coalesce(any_value(site.at), class_id::VARCHAR) AS at, sum(sum_seconds) AS value
FROM blocks LEFT JOIN (SELECT class_id, any_value("at") AS at FROM sites GROUP BY class_id) AS site USING (class_id)
WHERE job IN (SELECT job FROM jobs WHERE app = '{app}') GROUP BY job, class_id ORDER BY job, class_id
"""


def write(readers: Sequence[LogReader], path: Path, app: str, since: float | None) -> int:
    """Write the successful runs of `app` that ended after `since` (Unix seconds); returns the number of lines."""
    start = "'-infinity'::DOUBLE" if since is None else repr(since)
    runs = {row["job"]: row for row in _rows(readers, _RUNS.format(app=app, since=start))}
    places = _coordinates(runs)
    lines = [_line(places[job], "run", row["value"]) for job, row in runs.items()]
    for row in _rows(readers, _CLASSES.format(app=app)):
        if row["job"] in runs:
            # "->" separates call paths and occurs in C++'s operator->.
            name = f"{row['at'].replace('->', '.')} ({row['class_id']:x})"
            lines.append(_line(places[row["job"]], f"run->{name}", row["value"]))
    path.write_bytes(b"".join(lines))
    return len(lines)


def _rows(readers: Sequence[LogReader], query: str) -> list[Row]:
    """The rows of all collectors, by job."""
    answers = [reader.query(query, wire.MAX_SQL_ROWS, wire.MAX_SQL_SECONDS) for reader in readers]
    if any(answer.more for answer in answers):
        raise ReadRefused(f"more than {wire.MAX_SQL_ROWS} measurements, expected fewer: use --since")
    return joined(lambda row: row["job"])([rows_of(answer) for answer in answers])


def _coordinates(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The coordinates of each run: its number of ranks, and the parameters that are numeric in all runs and vary."""
    found: dict[str, dict[str, float]] = {}
    for job, row in runs.items():
        numbers = {name: _number(value) for name, value in msgspec.json.decode(row["params"]).items() if name != "p"}
        found[job] = {"p": row["ranks"]} | {name: value for name, value in numbers.items() if math.isfinite(value)}
    shared = set.intersection(*map(set, found.values())) if found else set()
    varied = {name for name in shared if name == "p" or len({values[name] for values in found.values()}) > 1}
    return {job: {name: values[name] for name in values if name in varied} for job, values in found.items()}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _line(params: Mapping[str, float], callpath: str, value: float) -> bytes:
    return msgspec.json.encode({"params": params, "callpath": callpath, "metric": "runtime", "value": value}) + b"\n"
