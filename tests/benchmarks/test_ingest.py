"""Throughput of a collector with a thousand concurrent streams, and of databases that a facility could use instead.

The collector acknowledges each stream and stores exactly once; the databases are loaded by one client with pre-encoded
messages, without streams or acknowledgements. Same records, same machine, one after the other.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_lab.bench.load import Load
from barograph_lab.bench.measured_collector import MeasuredCollector, Usage, stored_once
from helpers.printed import show
from helpers.rivals import InfluxDB, Message, PostgreSQL, Rival, VictoriaMetrics

STREAMS, ROWS = 1000, 500
MESSAGES = 1000
SECONDS = 10.0


def messages() -> Iterator[Message]:
    """The first messages of a load as values."""
    load = Load("tcp://127.0.0.1:1", MESSAGES // 2, ROWS, "bench")
    kinds = TABLES["blocks"].columns
    for part in range(2):
        for job in load.jobs:
            packed = job.columns | {"first_index": np.arange(part * ROWS, (part + 1) * ROWS).tobytes()}
            values: dict[str, Any] = wire.unpack(packed, kinds, ROWS)
            yield values | {"ended_at": values["ended_at"] + 1000.0 * part}
    load.close()


def collected(
    directory: Path, streams: int, rows: int, rate: float = 0.0, seconds: float = SECONDS
) -> dict[str, float]:
    """One load on one collector: records per second, latencies in seconds, cores. Asserts exactly-once storage."""
    directory.mkdir()
    with MeasuredCollector(directory) as collector:
        load = Load(collector.endpoint, streams, rows, "bench")
        assert load.open(240)
        before, own = collector.usage(), Usage.of_this_process()
        report = load.pace(seconds, rate) if rate else load.saturate(seconds, window=2)
        used, generated = collector.usage() - before, Usage.of_this_process() - own
        descriptors = collector.descriptors()
        sent = {job.name: job.sent for job in load.jobs}
        load.close()
    assert stored_once(directory, sent) == sum(sent.values()) == report.records
    p50, p99 = np.quantile(report.waits, [0.5, 0.99])
    return {
        "rate": report.records / report.seconds,
        "p50": float(p50),
        "p99": float(p99),
        "cores": used.cpu_seconds / report.seconds,
        "generator": generated.cpu_seconds / report.seconds,
        "bytes": float(used.peak_bytes),
        "descriptors": float(descriptors),
    }


@pytest.fixture(autouse=True)
def _descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.timeout(1800)
def test_records_a_second_beside_three_databases(tmp_path: Path) -> None:
    ours = collected(tmp_path / "collector", STREAMS, ROWS)
    per_cpu_second = ours["rate"] / (ours["cores"] + ours["generator"])
    found = {"collector": (ours["rate"], per_cpu_second)}
    rivals: list[type[Rival]] = [PostgreSQL, VictoriaMetrics, InfluxDB]
    for rival in rivals:
        with rival() as server:
            found[rival.name] = server.measure(list(messages()))
    show(
        "records a second, and per second of CPU time of server and client",
        [
            f"{name:16} {rate:12,.0f} {ours['rate'] / rate:8.2f} x {cpu:14,.0f} {per_cpu_second / cpu:8.2f} x"
            for name, (rate, cpu) in found.items()
        ],
    )
    # CPU time is asserted because it does not depend on the load of the machine.
    assert per_cpu_second / found["VictoriaMetrics"][1] > 2
    assert per_cpu_second / found["PostgreSQL"][1] > 0.8


def test_append_to_ack_at_a_hundred_thousand_records_a_second(tmp_path: Path) -> None:
    found = collected(tmp_path / "collector", STREAMS, 100, rate=100_000)
    show(
        "append to acknowledgement at 100,000 records a second from 1,000 streams",
        [f"p50 {1e3 * found['p50']:.0f} ms, p99 {1e3 * found['p99']:.0f} ms, collector {found['cores']:.2f} cores"],
    )
    assert found["rate"] == pytest.approx(100_000, rel=0.1)


@pytest.mark.timeout(1800)
def test_ten_thousand_idle_streams(tmp_path: Path) -> None:
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A link takes two descriptors: with a limit of 20,000 there are fewer streams.
    streams = min(10_000, (descriptors - 200) // 2)
    found = collected(tmp_path / "collector", streams, 1, rate=streams, seconds=60)
    show(
        f"{streams:,} streams of one record a second, 1 minute",
        [
            f"collector {found['cores']:.2f} cores, {found['bytes'] / 2**20:.0f} MiB",
            f"{found['descriptors']:.0f} descriptors",
            f"append to acknowledgement p99 {1e3 * found['p99']:.0f} ms",
        ],
    )
    assert found["rate"] == pytest.approx(streams, rel=0.1)
