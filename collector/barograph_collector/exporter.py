"""The collector's own metrics for Prometheus: its counters, and the sizes of its files. A scrape changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from barograph_collector.ingest.counters import Counters, Durations
from barograph_collector.ingest.space import free_bytes

_GAUGES: Final = {
    *("agent_resident_bytes", "queue_rows", "streams", "credit_taken_messages", "last_offset"),
    *("longest_checkpoint_seconds", "lag_seconds", "table_rows"),
}
_LABELS: Final = {
    **dict.fromkeys(("rows", "table_rows"), "table"),
    **dict.fromkeys(("appends", "reopens"), "result"),
    **dict.fromkeys(("rejected", "agent_rows_dropped"), "reason"),
}
_HELP: Final = {
    "rows": "Rows committed since the start, by table.",
    "appends": "Appends received since the start, by result.",
    "rejected": "Messages and connections not taken since the start, by reason.",
    "agent_intervals_counted": "Intervals of ended runs, as shims counted them, since the start.",
    "agent_intervals_stored": "Intervals committed since the start, those of running jobs too.",
    "agent_cpu_seconds": "Processor time of sidecars whose runs have ended, since the start, in seconds.",
    "agent_lived_seconds": "How long these sidecars have lived together, in seconds.",
    "agent_resident_bytes": "The most memory that one of them ever had, in bytes.",
    "agent_rows_dropped": "Rows that agents had to give up since the start, by reason.",
    "queue_rows": "Rows accepted and not yet committed.",
    "streams": "Streams held in memory: those that spoke last.",
    "credit_taken_messages": "Messages accepted and not yet acknowledged, of all streams together.",
    "credit_exhausted": "Times that a stream had used up its credit, since the start.",
    "last_offset": "Offset of the last row committed.",
    "commit_seconds": "Time a commit took, in seconds.",
    "checkpoint_seconds": "Time a checkpoint took, in which no rows came into the database, in seconds.",
    "longest_checkpoint_seconds": "The longest checkpoint since the start, in seconds.",
    "lag_seconds": "How long the oldest acknowledged rows have been waiting for the database, in seconds.",
    "reopens": "Times the database was opened again after a failure, since the start, by result.",
    "partitions_dropped": "Days of raw rows that retention has dropped.",
    "table_rows": "Rows in the log, by table; about.",
}
"""What each counter counts; all are counters but the gauges, and summaries where durations are."""


class Exporter(Collector):
    """Exposes the counters of a collector whose database is at this path."""

    def __init__(self, counters: Counters, database: Path) -> None:
        self._counters = counters
        self._database = database

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        for name in _HELP:
            yield _metric(name, getattr(self._counters, name))
        path = self._database
        journal = path.with_name(f"{path.name}.journal").glob("*")
        wal = path.with_name(f"{path.name}.wal")
        for name, text, value in (
            ("journal_bytes", "Size of the journal's segments, in bytes.", sum(map(_size, journal))),
            ("disk_free_bytes", "Room on the disk of the log, in bytes.", _free_bytes(path.parent)),
            ("database_bytes", "Size of the database file, in bytes.", _size(path)),
            ("wal_bytes", "Size of the write-ahead log, in bytes.", _size(wal)),
        ):
            yield GaugeMetricFamily(f"barograph_collector_{name}", text, value)


def _metric(counter: str, value: Any) -> Metric:
    name = f"barograph_{counter}" if counter.startswith("agent_") else f"barograph_collector_{counter}"
    if isinstance(value, Durations):
        return SummaryMetricFamily(name, _HELP[counter], value.count, value.seconds)
    kind = GaugeMetricFamily if counter in _GAUGES else CounterMetricFamily
    if counter not in _LABELS:
        return kind(name, _HELP[counter], value)
    family = kind(name, _HELP[counter], labels=[_LABELS[counter]])
    for key, number in value.items():
        family.add_metric([key], number)
    return family


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # there is no write-ahead log right after a checkpoint
        return 0


def _free_bytes(directory: Path) -> int:
    try:
        return free_bytes(directory)
    except FileNotFoundError:
        return 0
