"""Reference values of workloads, written by the modeler."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_alerts.detection.runtime_prior import RuntimeHistory
from barograph_modeler.maxima.band import GEV_METHODS
from barograph_modeler.pace.pace import Pace
from barograph_modeler.state import lru

MAX_WORKLOADS: Final = 40_000
"""Workloads kept, twice as many as jobs; those that were used least recently are evicted."""
MAX_CLASSES: Final = 512
"""Classes kept per workload."""


class _Learned:
    """What was learned of a workload. offsets: of the last row of each table."""

    def __init__(self) -> None:
        self.pace: Pace | Mapping[str, Any] | None = None
        """A row until it is asked for."""
        self.runtime: RuntimeHistory | None = None
        self.upper: OrderedDict[int, float] = OrderedDict()
        """The upper limit of each class, in seconds."""
        self.offsets: dict[str, int] = {}


class References:
    """Paces, runtimes and longest intervals by workload.

    is_partial: whether rows of a workload count only after `learn` was given those that the log has.
    """

    def __init__(self) -> None:
        self.is_partial = False
        self._learned: OrderedDict[str, _Learned] = OrderedDict()

    def use(self, workload: str) -> bool:
        """Whether what the log has of a workload was read, which is kept longer then."""
        if is_read := workload in self._learned:
            self._learned.move_to_end(workload)
        return is_read or not self.is_partial

    def learn(self, workloads: Iterable[str], rows: Iterable[tuple[str, Mapping[str, Column]]]) -> None:
        """Read rows of `paces` and `bands`: the last ones that the log has of some workloads."""
        for workload in workloads:
            lru.store(self._learned, workload, _Learned(), MAX_WORKLOADS)
        for table, columns in rows:
            self.read(table, columns)

    def has_pace(self, workload: str) -> bool:
        """Whether the log has a pace of a workload."""
        return workload in self._learned and self._learned[workload].pace is not None

    def forget(self) -> None:
        """Forget all workloads: the log is another one."""
        self._learned.clear()

    def pace(self, workload: str) -> Pace | None:
        """The pace of a workload; None if unknown. Raises ValueError for malformed texts."""
        if (learned := self._learned.get(workload)) is None:
            return None
        if isinstance(pace := learned.pace, Mapping):
            learned.pace = None  # what is malformed raises once
            learned.pace = pace = Pace.from_row(pace)
        return pace

    def runtime(self, workload: str) -> RuntimeHistory | None:
        """The runtimes of a workload; None if unknown."""
        return learned.runtime if (learned := self._learned.get(workload)) is not None else None

    def longest_seconds(self, workload: str) -> float:
        """The largest upper limit of the workload's classes; 0 if unknown."""
        learned = self._learned.get(workload)
        return max(learned.upper.values(), default=0.0) if learned is not None else 0.0

    def read(self, table: str, columns: Mapping[str, Column]) -> None:
        """Read rows of `paces` or `bands`."""
        match table:
            case "paces":
                for row, learned in self._newer(table, columns):
                    learned.pace = {name: values[row] for name, values in columns.items()}
            case "bands":
                self._read_bands(columns)

    def _read_bands(self, columns: Mapping[str, Column]) -> None:
        for row, learned in self._newer("bands", columns):
            lower, expected, upper = (float(columns[f"{c}_seconds"][row]) for c in ("lower", "expected", "upper"))
            if columns["kind"][row] == "runtime":
                learned.runtime = RuntimeHistory(lower, expected, upper, int(columns["samples"][row]))
            elif columns["method"][row] not in GEV_METHODS:
                # The limits of a GEV are those of a fit that is shown, and may be far beyond any interval.
                lru.store(learned.upper, int(columns["class_id"][row]), upper, MAX_CLASSES)

    def _newer(self, table: str, columns: Mapping[str, Column]) -> Iterator[tuple[int, _Learned]]:
        """Rows of workloads that count, by their numbers, and what is known of each. `learn` may have read them."""
        offsets = columns.get("log_offset", [0] * len(columns["workload"]))
        for row, (workload, offset) in enumerate(zip(columns["workload"], offsets, strict=True)):
            if not self.is_partial:
                learned = lru.get(self._learned, workload, _Learned, MAX_WORKLOADS)
            elif workload not in self._learned or offset <= self._learned[workload].offsets.get(table, 0):
                continue
            else:
                learned = self._learned[workload]
            learned.offsets[table] = int(offset)
            yield row, learned


def accepted_workloads(columns: Mapping[str, Column]) -> set[str]:
    """Workloads whose alarmed runs have become the history, by rows of `events`."""
    rows = zip(columns["source"], columns["kind"], columns["detail"], strict=True)
    return {source for source, kind, detail in rows if kind == "regime-closed" and '"accepted"' in detail}
