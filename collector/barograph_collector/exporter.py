"""The collector's own numbers as Prometheus metrics. Scraping changes nothing; no client names a label."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from barograph_collector.ingest.counters import Counters


class Exporter(Collector):
    """Builds the families from the counters and the sizes of the files."""

    def __init__(self, counters: Counters, database: Path) -> None:
        self._counters = counters
        self._database = database
        self._wal = database.with_name(database.name + ".wal")
        self._journal = database.with_name(database.name + ".journal")

    def collect(self) -> Iterator[Metric]:
        """The families, as they are now."""
        now = self._counters
        yield _counts("rows", "Rows committed since the start, by table.", "table", now.rows)
        yield _counts("appends", "Appends received since the start, by result.", "result", now.appends)
        yield _counts(
            "rejected", "Messages and connections not taken since the start, by reason.", "reason", now.refused
        )
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
        yield _gauge("streams", "Streams held in memory: those that spoke last.", now.streams)
        used = "Messages accepted and not yet acknowledged, of all streams together."
        yield _gauge("credit_taken_messages", used, now.credit_taken)
        exhausted = "Times that a stream had used up its credit, since the start."
        yield CounterMetricFamily("barograph_collector_credit_exhausted", exhausted, now.credit_exhausted)
        yield _gauge("last_offset", "Offset of the last row committed.", now.last_offset)
        yield SummaryMetricFamily(
            "barograph_collector_commit_seconds", "Time a commit took, in seconds.", now.commits, now.commit_seconds
        )
        yield SummaryMetricFamily(
            "barograph_collector_checkpoint_seconds",
            "Time a checkpoint took, in which no rows came into the database, in seconds.",
            now.checkpoints,
            now.checkpoint_seconds,
        )
        longest = "The longest checkpoint since the start, in seconds."
        yield _gauge("longest_checkpoint_seconds", longest, now.longest_checkpoint_seconds)
        lag = "How long the oldest acknowledged rows have been waiting for the database, in seconds."
        yield _gauge("lag_seconds", lag, time.monotonic() - now.waiting_since if now.waiting_since else 0.0)
        reopened = "Times the database was opened again after a failure, since the start, by result."
        yield _counts("reopens", reopened, "result", {"done": now.reopens, "failed": now.reopen_failures})
        yield CounterMetricFamily(
            "barograph_collector_partitions_dropped", "Days of raw rows that retention has dropped.", now.days_dropped
        )
        tables = GaugeMetricFamily(
            "barograph_collector_table_rows", "Rows in the log, by table; about.", labels=["table"]
        )
        for table, rows in now.table_rows.items():
            tables.add_metric([table], rows)
        yield tables
        yield _gauge("journal_bytes", "Size of the journal's segments, in bytes.", _size_within(self._journal))
        yield _gauge("disk_free_bytes", "Room on the disk of the log, in bytes.", _free(self._database.parent))
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


def _size_within(directory: Path) -> int:
    return sum(_size(path) for path in directory.glob("*"))


def _free(directory: Path) -> int:
    try:
        status = os.statvfs(directory)
    except FileNotFoundError:
        return 0
    return status.f_bavail * status.f_frsize
