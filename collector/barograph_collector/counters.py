"""What the collector counts about itself. Every number has one thread that writes it; a scrape only reads.

All keys exist from the start, so that a reader never meets a dict that changes its size, and no client names a key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from barograph_agent.tables import TABLES

RESULTS: Final = ("accepted", "duplicate", "refused")
REASONS: Final = ("version", "gap", "invalid", "unknown-stream", "credit", "undecodable", "multipart")


@dataclass
class Counters:
    """Since the start of this process."""

    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    appends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESULTS, 0))
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    commits: int = 0
    commit_seconds: float = 0.0
    last_offset: int = 0
    queue_rows: int = 0
    streams: int = 0
