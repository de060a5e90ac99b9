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
from barograph_collector.lake.sealer import LakeFigures
from barograph_collector.storage.store import JOURNAL_SUFFIX


class Exporter(Collector):
    """Exposes the counters of a collector whose database is at this path."""

    def __init__(self, counters: Counters, database: Path, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._counters = counters
        self._database = database

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        yield from _exposed("barograph_collector_", self._counters)
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
    """Exposes the figures of a sealer."""

    def __init__(self, figures: LakeFigures, clock: Clock = CLOCK) -> None:
        self._figures = figures
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        yield from _exposed("barograph_lake_", self._figures)
        text = "Largest possible age of the oldest rows of the database that the lake lacks, in seconds."
        yield gauge("barograph_lake_lag_seconds", text, self._figures.lag_seconds(self._clock.now()))


def _exposed(prefix: str, figures: Counters | LakeFigures) -> Iterator[Metric]:
    for field in dataclasses.fields(figures):
        if field.metadata:
            name = f"{'barograph_' if field.name.startswith('agent_') else prefix}{field.name}"
            yield _metric(name, field.metadata, getattr(figures, field.name))


def _metric(name: str, about: Mapping[str, Any], value: Any) -> Metric:
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
