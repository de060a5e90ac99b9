"""The results of a measurement: a summary as text or JSON, and CSV files of all times."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from barograph_lab.bsp.harness import Times


def summary(times: Times) -> dict[str, Any]:
    """Figures in seconds. `barrier`: its cost without waiting, the least time of any rank in each interval."""
    cost = times.barrier.min(axis=0) * 1e-9
    wait = times.barrier.mean(axis=0) * 1e-9
    return {
        "ranks": times.work.shape[0],
        "intervals": times.work.shape[1],
        "work": _spread(times.work.reshape(-1) * 1e-9),
        "maxima": _spread(times.maxima * 1e-9),
        "barrier": {**_spread(cost), "share": float(cost.sum() / max(times.maxima.sum() * 1e-9, 1e-12))},
        "wait_mean": float(wait.mean()),
    }


def _spread(values: npt.NDArray[np.floating]) -> dict[str, float]:
    quantiles = dict(zip(("p5", "p50", "p95"), np.quantile(values, [0.05, 0.5, 0.95]).tolist(), strict=True))
    return {"mean": float(values.mean()), **quantiles, "max": float(values.max())}


def text(name: str, found: Mapping[str, Any]) -> str:
    """The summary as text."""
    lines = [f"{name}: {found['intervals']} intervals on {found['ranks']} ranks"]
    for key, title in (("work", "work of a rank"), ("maxima", "maxima"), ("barrier", "barrier itself")):
        one = {figure: value * 1e3 for figure, value in found[key].items() if figure != "share"}
        lines.append(
            f"  {title:<15}{one['mean']:10.4f} ms mean   {one['p5']:10.4f} .. {one['p95']:.4f} (90 %), "
            f"median {one['p50']:.4f}, largest {one['max']:.4f}"
        )
    lines.append(f"  the barrier itself is {found['barrier']['share']:.2%} of the intervals")
    return "\n".join(lines)


def write(directory: Path, name: str, times: Times) -> None:
    """`ranks.csv`: a row for each rank and interval; `maxima.csv`: one for each interval. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    ranks, intervals = times.work.shape
    with (directory / "ranks.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["workload", "ranks", "interval", "rank", "host", "work_seconds", "barrier_seconds"])
        for rank, interval in np.ndindex(ranks, intervals):
            spent = (times.work[rank, interval] * 1e-9, times.barrier[rank, interval] * 1e-9)
            rows.writerow([name, ranks, interval, rank, times.hosts[rank], *(f"{value:.9f}" for value in spent)])
    with (directory / "maxima.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["workload", "ranks", "interval", "maximum_seconds"])
        for interval, value in enumerate(times.maxima * 1e-9):
            rows.writerow([name, ranks, interval, f"{value:.9f}"])
