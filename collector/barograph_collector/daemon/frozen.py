"""Metrics between two steps of a main loop, never in the middle of one."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Frozen(Collector):
    """What an exporter exposes, rendered while the state that it reads is still.

    still: held by whoever changes that state, from one consistent state to the next. So a scrape waits for the end of a
    step, and nothing is copied or rendered when nobody scrapes.
    """

    def __init__(self, exporter: Collector, still: threading.Lock) -> None:
        self._exporter = exporter
        self._still = still

    def collect(self) -> Iterable[Metric]:
        """All families, with samples of one state."""
        with self._still:
            return list(self._exporter.collect())
