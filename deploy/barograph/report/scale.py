"""The runs of one problem by scale, with the bands of their runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph.views.log import Row
from barograph.views.words import plural, work_label
from barograph_modeler.maxima.sample import Floats

FIRST: Final = "first"
"""The label of the first work of each scale, whose group has none."""


@dataclass(frozen=True)
class RunsAtScale:
    """Runtimes in seconds of one group of like work on one number of ranks and nodes, and the newest band of the next
    one."""

    workload: str
    ranks: int
    nodes: int
    healthy: Floats
    alarmed: Floats
    failed: int
    band: Row | None

    work: str = ""
    """The label of the work where the page shows several, empty where it shows one."""

    @property
    def name(self) -> str:
        """Ranks, nodes where there are several, and the work."""
        nodes = f" on {self.nodes:,} nodes" if self.nodes > 1 else ""
        return plural(self.ranks, "rank") + nodes + (f" (work {self.work})" if self.work else "")

    @property
    def tick(self) -> str:
        """The same in lines for an axis."""
        return "\n".join(
            [f"{self.ranks:,}", *([f"{self.nodes:,} nodes"] if self.nodes > 1 else []), *filter(None, [self.work])]
        )


def runs_by_scale(runs: Sequence[Row], bands: Mapping[str, Row]) -> list[RunsAtScale]:
    """The runs of one problem by scale and work. bands: of runtimes, by workload."""

    def seconds(rows: Sequence[Row], alarmed: bool) -> Floats:
        return np.array([row["runtime_seconds"] for row in rows if row["alarmed"] is alarmed], dtype=np.float64)

    found: dict[str, list[Row]] = {}
    for run in runs:
        found.setdefault(run["workload"], []).append(run)
    labels = {workload: work_label(workload) or FIRST for workload in found}
    several = len(set(labels.values())) > 1
    scales = []
    for workload, rows in found.items():
        succeeded = [row for row in rows if row["exit_status"] == 0]
        runtimes = seconds(succeeded, alarmed=False), seconds(succeeded, alarmed=True)
        size = rows[0]["ranks"], rows[0]["nodes"]
        failed, work = len(rows) - len(succeeded), labels[workload] if several else ""
        scales.append(RunsAtScale(workload, *size, *runtimes, failed, bands.get(workload), work))
    return sorted(scales, key=lambda scale: (scale.ranks, scale.nodes, scale.workload))


def extent(scales: Sequence[RunsAtScale]) -> str:
    """Groups of like work, where there are several works, and distinct numbers of ranks in words."""
    at = plural(len({scale.ranks for scale in scales}), "scale")
    groups = f"in {len(scales)} groups of like work " if any(scale.work for scale in scales) else ""
    return f"{groups}at {at}"
