"""Changes of limits while the collector serves, as by a reload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from barograph_collector.server import Collector
from barograph_collector.storage.days.retention import KEEP_ALL, Retention
from barograph_collector.storage.store import Store
from helpers.clocks import calendar_at
from helpers.log import blocks, collector_on, wait_until

FAST = 1e9


def test_rate_and_reserve_can_be_changed_without_loss(tmp_path: Path) -> None:
    outbox = Memory()

    def put(seq: int) -> None:
        outbox.put(1000, wire.encode(wire.append("job", seq, "blocks", 1000, blocks(1000, first=1000 * seq))))

    with collector_on(tmp_path / "log.duckdb", rows_per_second=FAST) as collector:
        link = Link(collector.endpoint, "job", outbox)

        def until(condition: Callable[[], bool], what: str) -> None:
            def step() -> bool:
                link.pump(0.01)
                return condition()

            wait_until(step, what)

        try:
            put(1)
            until(lambda: link.idle, "all is acknowledged")
            assert collector.counters.rejected["rate"] == 0
            collector.limit(1.0, KEEP_ALL, 0)
            for seq in (2, 3, 4):
                put(seq)
            until(lambda: collector.counters.rejected["rate"] > 0, "the rate limit applies")
            collector.limit(FAST, KEEP_ALL, 2**62)
            until(lambda: collector.counters.rejected["disk-full"] > 0, "the reserve applies")
            collector.limit(FAST, KEEP_ALL, 0)
            until(lambda: link.idle, "all is acknowledged again")
        finally:
            link.close()
        wait_until(lambda: collector.counters.rows["blocks"] == 4000, "all is in the database")


def test_a_changed_retention_applies_with_the_next_batch(tmp_path: Path) -> None:
    day = 86400.0
    now = 10 * day
    with Store(tmp_path / "log.duckdb", system=calendar_at(lambda: now)) as store:
        collector = Collector(store, "tcp://127.0.0.1:0", system=calendar_at(lambda: now))
        collector.start()
        link = Link(collector.endpoint, "job", outbox := Memory())

        def send(seq: int) -> None:
            outbox.put(10, wire.encode(wire.append("job", seq, "blocks", 10, blocks(10, first=10 * seq))))

            def stored() -> bool:
                link.pump(0.01)
                return collector.counters.rows["blocks"] == 10 * seq

            wait_until(stored, "rows are in the database")

        try:
            send(1)
            now = 11 * day
            send(2)
            assert collector.counters.partitions_dropped == 0
            now = 12 * day
            collector.limit(FAST, Retention(days=1), 0)
            send(3)
            wait_until(lambda: collector.counters.partitions_dropped == 1, "the old day is dropped")
            assert collector.counters.retention_held == 0
            now = 40 * day
            send(4)
            wait_until(lambda: collector.counters.retention_held == 1, "no day is dropped after a jump of the clock")
        finally:
            link.close()
            assert collector.stop(30)
