"""The collector's own metrics for Prometheus: its counters, and the sizes of its files. A scrape changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from barograph_agent.system.clock import CLOCK, Clock
from barograph_collector.daemon.families import counter, gauge
from barograph_collector.ingest.counters import Counters, Durations
from barograph_collector.lake.publisher import LakeFigures
from barograph_collector.storage.store import JOURNAL_SUFFIX


class Exporter(Collector):
    """Exposes the counters of a collector whose database is at this path."""

    def __init__(self, counters: Counters, database: Path, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._counters = counters
        self._database = database

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        for field in dataclasses.fields(self._counters):
            if field.metadata:
                yield _metric(field.name, field.metadata, getattr(self._counters, field.name))
        lag = self._counters.lag_seconds(self._clock.monotonic())
        path = self._database
        journal = path.with_name(f"{path.name}{JOURNAL_SUFFIX}").glob("*")
        wal = path.with_name(f"{path.name}.wal")
        free = 0
        with contextlib.suppress(FileNotFoundError):
            free = shutil.disk_usage(path.parent).free
        for name, text, value in (
            ("lag_seconds", "Age of the oldest acknowledged uncommitted rows, in seconds.", lag),
            ("journal_bytes", "Size of the journal's segments, in bytes.", sum(map(_size, journal))),
            ("disk_free_bytes", "Free space of the file system of the log, in bytes.", free),
            ("database_bytes", "Size of the database file, in bytes.", _size(path)),
            ("wal_bytes", "Size of the write-ahead log, in bytes.", _size(wal)),
        ):
            yield gauge(f"barograph_collector_{name}", text, value)


class LakeExporter(Collector):
    """Exposes the figures of a publisher."""

    def __init__(self, figures: LakeFigures, clock: Clock = CLOCK) -> None:
        self._figures = figures
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        figures = self._figures
        lag = figures.lag_seconds(self._clock.monotonic())
        for family, name, text, value in (
            (gauge, "last_offset", "Offset of the last row in the lake.", figures.position),
            (gauge, "lag_seconds", "Age of the oldest rows of the database that the lake lacks, in seconds.", lag),
            (counter, "rows", "Rows brought into the lake since the start.", figures.rows),
            (counter, "files", "Parquet files written for them.", figures.files),
            (counter, "files_merged", "Files that merges have replaced.", figures.merged),
            (counter, "days_archived", "Days that have left the database for the lake.", figures.archived),
            (counter, "days_expired", "Days of one table and cluster whose period was over.", figures.expired),
            (counter, "bytes", "Size of these files, in bytes.", figures.bytes),
            (counter, "failures", "Failed attempts to bring rows into the lake.", figures.failures),
        ):
            yield family(f"barograph_lake_{name}", text, value)
        name, text = "barograph_lake_commit_seconds", "Duration of batches, from reading to commit, in seconds."
        yield SummaryMetricFamily(name, text, figures.commits.count, figures.commits.seconds)


def _metric(name: str, about: Mapping[str, Any], value: Any) -> Metric:
    name = f"barograph_{name}" if name.startswith("agent_") else f"barograph_collector_{name}"
    if isinstance(value, Durations):
        return SummaryMetricFamily(name, about["help"], value.count, value.seconds)
    family = gauge if about["gauge"] else counter
    if about["label"]:
        return family(name, about["help"], [((key,), number) for key, number in value.items()], about["label"])
    return family(name, about["help"], value)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # there is no write-ahead log right after a checkpoint
        return 0
