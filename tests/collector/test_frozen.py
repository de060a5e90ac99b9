"""A scrape, or a page, during a step sees the state before it or after it, and never one in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_agent.protocol import wire
from barograph_agent.protocol.wire import Column
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import Round
from barograph_collector.daemon.families import gauge
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import Output, Runner
from barograph_collector.daemon.service import Frozen
from barograph_collector.exporter import Exporter
from barograph_collector.ingest.counters import Counters
from barograph_collector.storage.rows import Entry
from helpers.log import Producer, blocks, collector_on

LOOK_SECONDS = 0.2
"""How long a scrape is given in the middle of a step: without a lock it needs far less."""


class Scrape(threading.Thread):
    """A scrape in another thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(daemon=True)
        self._registry = registry
        self.found: dict[str, float] = {}

    def run(self) -> None:
        for family in self._registry.collect():
            for sample in family.samples:
                self.found["/".join([sample.name, *sample.labels.values()])] = sample.value

    def begin(self) -> None:
        """Start, and let it see what it can."""
        self.start()
        self.join(LOOK_SECONDS)


class Pair(Collector):
    """A processor whose two numbers are equal between steps, the log that it follows, and its exporter."""

    def __init__(self) -> None:
        self.observed = self.stepped = 0
        self.idle = True
        self.quarantine = Quarantine()
        self.middle: Callable[[], None] = lambda: None

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        if any(offsets.values()):
            return max(offsets.values()), {}
        return 1, {"runs": {"log_offset": [1]}}

    def read(self, table: str, after: int, limit: int = 0, job: str = "") -> Any:
        raise NotImplementedError

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def pump(self) -> None:
        pass

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        self.observed += 1
        self.middle()

    def step(self, now: float) -> list[Output]:
        self.stepped = self.observed
        return []

    def collect(self) -> Iterator[Metric]:
        yield gauge("observed", "Rows.", self.observed)
        yield gauge("stepped", "Rows.", self.stepped)


def test_a_scrape_during_a_step_of_a_follower_waits_for_its_end() -> None:
    pair, still, registry = Pair(), threading.Lock(), CollectorRegistry()
    registry.register(Frozen(pair, still))
    scrape = Scrape(registry)
    pair.middle = scrape.begin
    Runner(pair, Follower(pair, ["runs"]), pair, still=still).step()
    scrape.join()
    assert scrape.found == {"observed": 1, "stepped": 1}


def test_a_scrape_during_a_commit_of_the_collector_waits_until_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, count = CollectorRegistry(), Counters.count
    scrape = Scrape(registry)

    def slow(self: Counters, entries: Sequence[Entry]) -> None:
        scrape.begin()
        count(self, entries)

    monkeypatch.setattr(Counters, "count", slow)
    path = tmp_path / "log.duckdb"
    with collector_on(path) as collector, Producer(collector.endpoint) as producer:
        registry.register(Frozen(Exporter(collector.counters, path), collector.counters.still))
        producer.hello()
        producer.append(1, "blocks", 3, blocks(3))
        producer.receive_ack(1)
        producer.send(wire.Read(1, "blocks", 0))
        assert producer.receive(wire.Rows).rows == 3
    scrape.join()
    found = scrape.found
    assert found["barograph_collector_last_offset"] == found["barograph_collector_rows_total/blocks"] == 3
    assert found["barograph_collector_commit_seconds_count"] == 1
