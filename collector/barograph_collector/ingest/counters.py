"""What the collector counts about itself. Each number has one thread that writes it; a scrape only reads.

All keys exist from the start, so a reader never meets a dict that changes its size, and no key comes from a client.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from barograph_agent.protocol.tables import TABLES
from barograph_collector.storage.rows import CheckedRows, numbers, texts

RESULTS: Final = ("accepted", "duplicate", "refused")
REASONS: Final = (
    *("version", "gap", "invalid", "oversized", "unknown-stream", "credit", "rate", "undecodable", "multipart"),
    "ignored",
    *("handshake", "key", "role", "credential", "replayed", "forbidden"),
    *("disk-full", "unavailable"),
)
DROPS: Final = ("ring-full", "spool-cap", "spool-corrupt", "memory-cap", "forgotten", "other")


@dataclass
class Durations:
    """How many durations were observed, and their sum in seconds."""

    count: int = 0
    seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        """Add one."""
        self.count += 1
        self.seconds += seconds


@dataclass
class Counters:
    """Since the start of this process. `exporter` exposes each by its name and says what it counts.

    Once all runs have ended: intervals counted by shims = stored + dropped.
    """

    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    appends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESULTS, 0))
    rejected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    agent_intervals_counted: int = 0
    agent_intervals_stored: int = 0
    agent_cpu_seconds: float = 0.0
    agent_lived_seconds: float = 0.0
    agent_resident_bytes: int = 0
    agent_rows_dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DROPS, 0))
    queue_rows: int = 0
    streams: int = 0
    credit_taken_messages: int = 0
    credit_exhausted: int = 0
    last_offset: int = 0
    commit_seconds: Durations = field(default_factory=Durations)
    checkpoint_seconds: Durations = field(default_factory=Durations)
    longest_checkpoint_seconds: float = 0.0
    waiting_since: float = 0.0
    """When the oldest rows that are acknowledged and not in the database became durable (monotonic); 0 for none."""
    reopens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("done", "failed"), 0))
    partitions_dropped: int = 0
    table_rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))

    @property
    def lag_seconds(self) -> float:
        """How long the oldest acknowledged rows have been waiting for the database."""
        return time.monotonic() - self.waiting_since if self.waiting_since else 0.0

    def count(self, entries: Sequence[CheckedRows]) -> None:
        """Count committed rows, and what they report about agents."""
        by_table: dict[str, list[CheckedRows]] = {}
        for entry in entries:
            by_table.setdefault(entry.table, []).append(entry)
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
                    most = int(numbers(same, "resident_bytes").max())
                    self.agent_resident_bytes = max(self.agent_resident_bytes, most)
                case "events":
                    for kind, rows, reason in zip(
                        texts(same, "kind"), numbers(same, "rows").tolist(), texts(same, "detail"), strict=True
                    ):
                        if kind == "dropped":
                            self.agent_rows_dropped[reason if reason in DROPS else "other"] += rows
