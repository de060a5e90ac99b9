"""Counters of the collector. Each number is written by one thread; a scrape only reads.

All keys of a dict exist from the start and none comes from a client: no reader meets a dict that changes its size.
"""

# ruff: noqa: RUF009 - the calls in the dataclass make its fields

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barograph_agent.protocol.tables import TABLES
from barograph_agent.protocol.wire import DROPS
from barograph_collector.storage.rows import Entry, numbered, numbers, texts

RESULTS: Final = ("accepted", "duplicate", "refused")
REASONS: Final = (
    *("version", "gap", "invalid", "oversized", "unknown-stream", "credit", "rate", "undecodable", "multipart"),
    *("ignored", "failed"),
    *("handshake", "key", "role", "credential", "replayed", "forbidden"),
    *("disk-full", "unavailable"),
)


@dataclass
class Durations:
    """The number of observed durations, and their sum in seconds."""

    count: int = 0
    seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        """Add one."""
        self.count += 1
        self.seconds += seconds


def metric(text: str, value: Callable[[], object] = int, *, label: str = "", gauge: bool = False) -> Any:
    """A field that is exposed, as a counter or a gauge; a summary for Durations. text: the help."""
    return field(default_factory=value, metadata={"help": text, "label": label, "gauge": gauge})


def _metrics(text: str, label: str, keys: Iterable[str], *, gauge: bool = False) -> Any:
    """A field with a number for each value of a label."""
    return metric(text, lambda: dict.fromkeys(keys, 0), label=label, gauge=gauge)


@dataclass
class Counters:
    """Counts since the start of this process. `exporter` exposes the fields that have a help text.

    still: held while a commit is counted, and by a scrape.

    Once all runs have ended: intervals counted by shims = stored + dropped.
    """

    still: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[str, int] = _metrics("Rows committed since the start, by table.", "table", TABLES)
    appends: dict[str, int] = _metrics("Appends received since the start, by result.", "result", RESULTS)
    rejected: dict[str, int] = _metrics(
        "Messages and connections rejected since the start, by reason.", "reason", REASONS
    )
    agent_intervals_counted: int = metric("Intervals of ended runs, as counted by shims, since the start.")
    agent_intervals_stored: int = metric("Intervals committed since the start, including those of running jobs.")
    agent_cpu_seconds: float = metric("Total processor time of sidecars of ended runs, in seconds.", float)
    agent_lived_seconds: float = metric("Total lifetime of these sidecars, in seconds.", float)
    agent_steps: int = metric("Total number of steps of these sidecars.")
    agent_longest_step_seconds: float = metric("Processor time of the longest of these steps, in seconds.", gauge=True)
    agent_clock_error_seconds: float = metric("Largest error of the clock of a node, in seconds.", gauge=True)
    agent_resident_bytes: int = metric("Largest resident memory of one of these sidecars, in bytes.", gauge=True)
    agent_rows_dropped: dict[str, int] = _metrics("Rows dropped by agents since the start, by reason.", "reason", DROPS)
    queue_rows: int = metric("Rows accepted and not yet committed.", gauge=True)
    streams: int = metric("Streams in memory, the most recently used ones.", gauge=True)
    credit_taken_messages: int = metric("Messages accepted and not yet acknowledged, of all streams.", gauge=True)
    credit_exhausted: int = metric("Times that a stream has used up its credit, since the start.")
    last_offset: int = metric("Offset of the last row committed.", gauge=True)
    commit_seconds: Durations = metric("Duration of commits, in seconds.", Durations)
    checkpoint_seconds: Durations = metric(
        "Duration of checkpoints, during which no rows are committed, in seconds.", Durations
    )
    longest_checkpoint_seconds: float = metric("The longest checkpoint since the start, in seconds.", float, gauge=True)
    waiting_since: float = 0.0
    """When the oldest rows that are acknowledged and not in the database became durable (monotonic); 0 for none."""
    reopens: dict[str, int] = _metrics(
        "Attempts to open the database again after a failure, since the start, by result.", "result", ("done", "failed")
    )
    partitions_dropped: int = metric("Days of raw rows dropped by retention.")
    journal_lost: int = metric("Acknowledged messages that a damaged journal lacked at the start.")
    retention_held: int = metric(
        "1 while no days are dropped by age, because the clock has jumped or is behind the newest rows.", gauge=True
    )
    table_rows: dict[str, int] = _metrics("Approximate rows in the log, by table.", "table", TABLES, gauge=True)

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest acknowledged rows that are not in the database. now: monotonic, in seconds."""
        return now - self.waiting_since if self.waiting_since else 0.0

    def count(self, entries: Sequence[Entry]) -> None:
        """Count committed rows, and the figures of agents in them."""
        by_table, _, _ = numbered(entries, 0, {})
        for table, same in by_table.items():
            rows = sum(entry.rows for entry in same)
            self.rows[table] += rows
            self.table_rows[table] += rows
            match table:
                case "blocks":
                    self.agent_intervals_stored += int(numbers(same, "count").sum())
                case "runs":
                    self.agent_intervals_counted += int(numbers(same, "intervals").sum())
                    self.agent_rows_dropped["ring-full"] += int(numbers(same, "dropped").sum())
                case "sidecars":
                    self.agent_cpu_seconds += float(numbers(same, "cpu_seconds").sum())
                    self.agent_lived_seconds += float(numbers(same, "lived_seconds").sum())
                    self.agent_steps += int(numbers(same, "steps").sum())
                    for name in ("longest_step_seconds", "clock_error_seconds", "resident_bytes"):
                        most = max(getattr(self, f"agent_{name}"), *numbers(same, name).tolist())
                        setattr(self, f"agent_{name}", most)
                case "events":
                    for kind, rows, reason in zip(
                        texts(same, "kind"), numbers(same, "rows").tolist(), texts(same, "detail"), strict=True
                    ):
                        if kind == "dropped":
                            self.agent_rows_dropped[reason if reason in DROPS else "other"] += rows
