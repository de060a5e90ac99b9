"""Data that a processor cannot handle costs its job, and no other; the daemon goes on and reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import Round
from barograph_collector.daemon.quarantine import MAX_DETAIL, Quarantine, QuarantineExporter
from barograph_collector.daemon.runner import Output, Runner

pytestmark = pytest.mark.quarantine


class Fragile:
    """A log in rounds, and a processor that raises for each runtime below zero, and for the job `late` in a step."""

    def __init__(self, *rounds: list[tuple[str, float]]) -> None:
        self.rounds = list(rounds)
        self.read_rows: list[tuple[str, float]] = []
        self.forgotten: list[str] = []
        self.written: list[dict[str, Any]] = []
        self.quarantine = Quarantine(self.forgotten.append)
        self.idle = True
        self.breaks = False

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        if not self.rounds:
            return max(offsets.values()), {}
        rows = self.rounds.pop(0)
        offset = np.arange(len(rows)) + offsets["runs"] + 1
        columns = {
            "log_offset": offset,
            "job": [job for job, _ in rows],
            "runtime_seconds": np.array([s for _, s in rows]),
        }
        return int(offset[-1]), {"runs": columns}

    def read(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def observe(self, table: str, columns: Mapping[str, Any], now: float) -> None:
        for job, seconds in zip(columns["job"], columns["runtime_seconds"], strict=True):
            if seconds < 0:
                raise ValueError(f"{seconds} s, expected at least 0 \ud800" + "x" * 1000)
            self.read_rows.append((job, float(seconds)))

    def step(self, now: float) -> list[Output]:
        if self.breaks:
            raise ZeroDivisionError
        return []

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        self.written.append({"table": table, **columns})

    def pump(self) -> None:
        pass

    def run(self) -> Fragile:
        Runner(self, Follower(self, ["runs"]), self, clock=lambda: 7.0, name="modeler").step()
        return self


def test_rows_that_raise_cost_their_job_alone_which_is_forgotten_and_reported_once() -> None:
    found = Fragile([("a", 1.0), ("b", -1.0), ("b", 2.0), ("a", 3.0)], [("b", 4.0), ("c", 5.0), ("b", -1.0)]).run()
    assert found.read_rows == [("a", 1.0), ("a", 3.0), ("c", 5.0)]
    assert found.forgotten == ["b"]
    (event,) = found.written
    assert [event[name] for name in ("table", "source", "kind", "time")] == ["events", "b", "quarantine", 7.0]
    assert event["detail"].startswith("modeler: runs: ValueError: -1.0 s, expected at least 0 ?x")
    assert len(event["detail"]) < MAX_DETAIL + 40
    assert found.quarantine.skipped_rows == 2


def test_a_step_that_raises_each_time_is_reported_once_and_counted() -> None:
    found = Fragile()
    found.breaks = True
    for _ in range(3):
        found.run()
    assert [(event["source"], event["detail"]) for event in found.written] == [
        ("modeler", "modeler: step: ZeroDivisionError: ")
    ]
    registry = CollectorRegistry()
    registry.register(QuarantineExporter(found.quarantine))
    text = generate_latest(registry).decode()
    assert 'barograph_processing_failures_total{place="step"} 3.0' in text
    assert "barograph_quarantined_jobs 0.0" in text


def test_rows_that_cannot_be_written_end_nothing() -> None:
    found = Fragile([("a", 1.0)])
    found.step = lambda now: [Output("events", 1, {"source": "\ud800"})]  # type: ignore[method-assign]
    found.put = lambda *row: row[2]["source"].encode()  # type: ignore[method-assign]
    found.run()
    assert found.quarantine.failures["append events"] == 1
