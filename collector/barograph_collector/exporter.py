"""The collector's own numbers as Prometheus metrics. Scraping changes nothing; no client names a label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from barograph_collector.counters import Counters


class Exporter(Collector):
    """Builds the families from the counters and the sizes of the files."""

    def __init__(self, counters: Counters, database: Path) -> None:
        self._counters = counters
        self._database = database
        self._wal = database.with_name(database.name + ".wal")

    def collect(self) -> Iterator[Metric]:
        """The families, as they are now."""
        now = self._counters
        yield _counts("rows", "Rows committed since the start, by table.", "table", now.rows)
        yield _counts("appends", "Appends received since the start, by result.", "result", now.appends)
        yield _counts("refused", "Messages not taken since the start, by reason.", "reason", now.refused)
        # What agents owe: counted by shims = stored + dropped, once all runs have ended.
        counted = "Intervals of ended runs, as shims counted them, since the start."
        yield CounterMetricFamily("barograph_agent_intervals_counted", counted, now.agent_counted)
        stored = "Intervals committed since the start, those of running jobs too."
        yield CounterMetricFamily("barograph_agent_intervals_stored", stored, now.agent_stored)
        cpu = "Processor time of sidecars whose runs have ended, since the start, in seconds."
        yield CounterMetricFamily("barograph_agent_cpu_seconds", cpu, now.agent_cpu_seconds)
        lived = "How long these sidecars have lived together, in seconds."
        yield CounterMetricFamily("barograph_agent_lived_seconds", lived, now.agent_lived_seconds)
        resident = "The most memory that one of them ever had, in bytes."
        yield GaugeMetricFamily("barograph_agent_resident_bytes", resident, now.agent_resident_bytes)
        dropped = CounterMetricFamily(
            "barograph_agent_rows_dropped",
            "Rows that agents had to give up since the start, by reason.",
            labels=["reason"],
        )
        for reason, rows in now.agent_dropped.items():
            dropped.add_metric([reason], rows)
        yield dropped
        yield _gauge("queue_rows", "Rows accepted and not yet committed.", now.queue_rows)
        yield _gauge("streams", "Streams known.", now.streams)
        yield _gauge("last_offset", "Offset of the last row committed.", now.last_offset)
        yield SummaryMetricFamily(
            "barograph_collector_commit_seconds", "Time a commit took, in seconds.", now.commits, now.commit_seconds
        )
        yield _gauge("database_bytes", "Size of the database file, in bytes.", _size(self._database))
        yield _gauge("wal_bytes", "Size of the write-ahead log, in bytes.", _size(self._wal))


def _counts(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"barograph_collector_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"barograph_collector_{name}", text, value)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # there is no write-ahead log right after a checkpoint
        return 0
