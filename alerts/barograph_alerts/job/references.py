"""Reference values of workloads, written by the modeler, and names of classes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_alerts.detection.runtime_prior import RuntimeHistory
from barograph_modeler.maxima.band import GEV_METHODS
from barograph_modeler.pace.pace import Pace
from barograph_modeler.state import lru

MAX_SITES: Final = 100_000
"""Names of classes kept; the oldest are evicted."""
MAX_WORKLOADS: Final = 20_000
"""Workloads kept; those without a new row for longest are evicted."""
MAX_CLASSES: Final = 512
"""Classes kept per workload."""


class References:
    """Paces, runtimes and longest intervals by workload, and names of classes."""

    def __init__(self) -> None:
        self._paces: OrderedDict[str, Pace | Mapping[str, Any]] = OrderedDict()
        """Rows until they are asked for: of most workloads that were learned once, no job runs."""
        self.runtimes: OrderedDict[str, RuntimeHistory] = OrderedDict()
        self._upper: OrderedDict[str, OrderedDict[int, float]] = OrderedDict()
        """The upper limit of each class, in seconds."""
        self._sites: OrderedDict[int, str] = OrderedDict()

    def pace(self, workload: str) -> Pace | None:
        """The pace of a workload; None if unknown. Raises ValueError for malformed texts."""
        if isinstance(known := self._paces.get(workload), Mapping):
            del self._paces[workload]  # what is malformed raises once
            self._paces[workload] = known = Pace.from_row(known)
        return known

    def longest_seconds(self, workload: str) -> float:
        """The largest upper limit of the workload's classes; 0 if unknown."""
        return max(self._upper.get(workload, {}).values(), default=0.0)

    def name(self, class_id: int) -> str:
        """The name of a class: the innermost frames of the call paths before and after it."""
        return self._sites.get(class_id, f"class {class_id:016x}")

    def read(self, table: str, columns: Mapping[str, Column]) -> None:
        """Read rows of `paces`, `bands` or `sites`."""
        match table:
            case "paces":
                for row, workload in enumerate(columns["workload"]):
                    of_workload = {name: values[row] for name, values in columns.items()}
                    lru.store(self._paces, workload, of_workload, MAX_WORKLOADS)
            case "bands":
                self._read_bands(columns)
            case "sites":
                for class_id, before, at in zip(columns["class_id"], columns["before"], columns["at"], strict=True):
                    lru.store(self._sites, int(class_id), f"{_innermost(before)} -> {_innermost(at)}", MAX_SITES)

    def _read_bands(self, columns: Mapping[str, Column]) -> None:
        names = ("workload", "kind", "method", "class_id")
        for row, (workload, kind, method, class_id) in enumerate(zip(*(columns[n] for n in names), strict=True)):
            lower, expected, upper = (float(columns[f"{c}_seconds"][row]) for c in ("lower", "expected", "upper"))
            if kind == "runtime":
                history = RuntimeHistory(lower, expected, upper, int(columns["samples"][row]))
                lru.store(self.runtimes, workload, history, MAX_WORKLOADS)
            elif method not in GEV_METHODS:
                # The limits of a GEV are those of a fit that is shown, and may be far beyond any interval.
                classes = lru.get(self._upper, workload, OrderedDict[int, float], MAX_WORKLOADS)
                lru.store(classes, int(class_id), upper, MAX_CLASSES)


def changed_workloads(columns: Mapping[str, Column]) -> list[tuple[str, float]]:
    """Workloads with a closed regime in rows of `events`, and the times in Unix seconds."""
    rows = zip(columns["source"], columns["kind"], columns["at"], strict=True)
    return [(source, float(at)) for source, kind, at in rows if kind == "regime-closed"]


def accepted_workloads(columns: Mapping[str, Column]) -> set[str]:
    """Workloads whose alarmed runs have become the history, by rows of `events`."""
    rows = zip(columns["source"], columns["kind"], columns["detail"], strict=True)
    return {source for source, kind, detail in rows if kind == "regime-closed" and '"accepted"' in detail}


def _innermost(site: str) -> str:
    return site.partition(" < ")[0]
