"""The collector's own metrics for Prometheus: its counters, and the sizes of its files. A scrape changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from barograph_agent.system.clock import CLOCK, Clock
from barograph_collector.daemon.families import counter, gauge
from barograph_collector.ingest.counters import Counters, Durations
from barograph_collector.lake.sealer import LakeFigures
from barograph_collector.storage.store import JOURNAL_SUFFIX


@dataclass(eq=False)
class Exporter(Collector):
    """Exposes the counters of a collector whose database is at this path."""

    counters: Counters
    database: Path
    clock: Clock = CLOCK

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        yield from _exposed("barograph_collector_", self.counters)
        path, free = self.database, 0
        journal = path.with_name(f"{path.name}{JOURNAL_SUFFIX}").glob("*")
        with contextlib.suppress(FileNotFoundError):
            free = shutil.disk_usage(path.parent).free
        lag = self.counters.lag_seconds(self.clock.monotonic())
        for name, text, value in (
            ("lag_seconds", "Age of the oldest acknowledged uncommitted rows, in seconds.", lag),
            ("journal_bytes", "Size of the journal's segments, in bytes.", sum(map(_size, journal))),
            ("disk_free_bytes", "Free space of the file system of the log, in bytes.", free),
            ("database_bytes", "Size of the database file, in bytes.", _size(path)),
            ("wal_bytes", "Size of the write-ahead log, in bytes.", _size(path.with_name(f"{path.name}.wal"))),
        ):
            yield gauge(f"barograph_collector_{name}", text, value)


@dataclass(eq=False)
class LakeExporter(Collector):
    """Exposes the figures of a sealer."""

    figures: LakeFigures
    clock: Clock = CLOCK

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        yield from _exposed("barograph_lake_", self.figures)
        text = "Largest possible age of the oldest rows of the database that the lake lacks, in seconds."
        yield gauge("barograph_lake_lag_seconds", text, self.figures.lag_seconds(self.clock.now()))


def _exposed(prefix: str, figures: Counters | LakeFigures) -> Iterator[Metric]:
    for field in dataclasses.fields(figures):
        if about := field.metadata:
            name = f"{'barograph_' if field.name.startswith('agent_') else prefix}{field.name}"
            value: Any = getattr(figures, field.name)
            if isinstance(value, Durations):
                yield SummaryMetricFamily(name, about["help"], value.count, value.seconds)
                continue
            values = [((key,), number) for key, number in value.items()] if about["label"] else value
            yield (gauge if about["gauge"] else counter)(name, about["help"], values, *filter(None, [about["label"]]))


def _size(path: Path) -> int:
    """The size of a file; 0 for none, as of the write-ahead log right after a checkpoint."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
