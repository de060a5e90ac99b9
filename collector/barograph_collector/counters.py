"""What the collector counts about itself. Every number has one thread that writes it; a scrape only reads.

All keys exist from the start, so that a reader never meets a dict that changes its size, and no client names a key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from barograph_agent import wire
from barograph_agent.tables import TABLES
from barograph_collector.rows import Entry

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

    def count(self, entry: Entry) -> None:
        """Take note of committed rows, and of what they say about the agents' own balance."""
        self.rows[entry.table] += entry.rows
        self.table_rows[entry.table] += entry.rows
        match entry.table:
            case "blocks":
                self.agent_stored += int(_total(entry, "count"))
            case "runs":
                self.agent_counted += int(_total(entry, "intervals"))
                self.agent_dropped["ring-full"] += int(_total(entry, "dropped"))
            case "sidecars":
                self.agent_cpu_seconds += _total(entry, "cpu_seconds")
                self.agent_lived_seconds += _total(entry, "lived_seconds")
                self.agent_resident_bytes = max(self.agent_resident_bytes, int(np.max(entry.columns["resident_bytes"])))
            case "events":
                columns = (wire.spread(entry.columns[name], entry.rows) for name in ("kind", "rows", "detail"))
                for kind, rows, detail in zip(*columns, strict=True):
                    if kind == "dropped":
                        self.agent_dropped[detail if detail in DROPS else "other"] += int(rows)


def _total(entry: Entry, column: str) -> float:
    return float(np.sum(wire.spread(entry.columns[column], entry.rows)))
