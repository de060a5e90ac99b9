"""The runs of one problem by scale, with the bands of their runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from barograph.views.log import Row
from barograph.views.words import plural, work_label
from barograph_modeler.maxima.sample import Floats


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

    @property
    def label(self) -> str:
        """What tells the group from that of the first work; empty for that."""
        return work_label(self.workload)

    @property
    def name(self) -> str:
        """Ranks, nodes where there are several, and the label of the group."""
        nodes = f" on {self.nodes:,} nodes" if self.nodes > 1 else ""
        return plural(self.ranks, "rank") + nodes + (f" ({self.label})" if self.label else "")

    @property
    def tick(self) -> str:
        """The same in lines for an axis."""
        return "\n".join(
            [f"{self.ranks:,}", *([f"{self.nodes:,} nodes"] if self.nodes > 1 else []), *filter(None, [self.label])]
        )


def runs_by_scale(runs: Sequence[Row], bands: Mapping[str, Row]) -> list[RunsAtScale]:
    """The runs of one problem by scale. bands: of runtimes, by workload."""

    def seconds(rows: Sequence[Row], alarmed: bool) -> Floats:
        return np.array([row["runtime_seconds"] for row in rows if row["alarmed"] is alarmed], dtype=np.float64)

    found: dict[str, list[Row]] = {}
    for run in runs:
        found.setdefault(run["workload"], []).append(run)
    scales = []
    for workload, rows in found.items():
        succeeded = [row for row in rows if row["exit_status"] == 0]
        runtimes = seconds(succeeded, alarmed=False), seconds(succeeded, alarmed=True)
        size = rows[0]["ranks"], rows[0]["nodes"]
        scales.append(RunsAtScale(workload, *size, *runtimes, len(rows) - len(succeeded), bands.get(workload)))
    return sorted(scales, key=lambda scale: (scale.ranks, scale.nodes, scale.workload))
