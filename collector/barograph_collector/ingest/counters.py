"""What the collector counts about itself. Every number has one thread that writes it; a scrape only reads.

All keys exist from the start, so that a reader never meets a dict that changes its size, and no client names a key.
"""

from __future__ import annotations

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
class Counters:
    """Since the start of this process."""

    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    appends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESULTS, 0))
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    agent_counted: int = 0
    """Intervals of ended runs, as shims counted them."""
    agent_stored: int = 0
    agent_dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DROPS, 0))
    agent_cpu_seconds: float = 0.0
    agent_lived_seconds: float = 0.0
    agent_resident_bytes: int = 0
    """The most that a sidecar ever had."""
    commits: int = 0
    commit_seconds: float = 0.0
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    longest_checkpoint_seconds: float = 0.0
    days_dropped: int = 0
    reopens: int = 0
    reopen_failures: int = 0
    table_rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    """In the log, about."""
    waiting_since: float = 0.0
    """When the oldest rows that are acknowledged and not in the database became durable (monotonic); 0 for none."""
    last_offset: int = 0
    queue_rows: int = 0
    streams: int = 0
    credit_taken: int = 0
    credit_exhausted: int = 0

    def count(self, entries: Sequence[CheckedRows]) -> None:
        """Take note of committed rows, and of what they say about the agents' own balance."""
        by_table: dict[str, list[CheckedRows]] = {}
        for entry in entries:
            by_table.setdefault(entry.table, []).append(entry)
        for table, same in by_table.items():
            rows = sum(entry.rows for entry in same)
            self.rows[table] += rows
            self.table_rows[table] += rows
            match table:
                case "blocks":
                    self.agent_stored += int(numbers(same, "count").sum())
                case "runs":
                    self.agent_counted += int(numbers(same, "intervals").sum())
                    self.agent_dropped["ring-full"] += int(numbers(same, "dropped").sum())
                case "sidecars":
                    self.agent_cpu_seconds += float(numbers(same, "cpu_seconds").sum())
                    self.agent_lived_seconds += float(numbers(same, "lived_seconds").sum())
                    most = int(numbers(same, "resident_bytes").max())
                    self.agent_resident_bytes = max(self.agent_resident_bytes, most)
                case "events":
                    self._count_drops(same)

    def _count_drops(self, events: Sequence[CheckedRows]) -> None:
        dropped = zip(texts(events, "kind"), numbers(events, "rows").tolist(), texts(events, "detail"), strict=True)
        for kind, rows, detail in dropped:
            if kind == "dropped":
                self.agent_dropped[detail if detail in DROPS else "other"] += rows
