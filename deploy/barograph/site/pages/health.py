"""The pipeline: state of the daemons, dropped and rejected rows, from their metrics."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.samples import Sample

from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import MAX_AGE
from barograph.views.modeler import scrape
from barograph_collector.daemon.service import HEARTBEAT

SCRAPE_SECONDS: Final = 2.0
SCRAPE_BYTES: Final = 8 * 2**20
STALLED_SECONDS: Final = 60.0
"""A daemon whose last heartbeat is older is stalled, as in the alerting rules."""
_LOST: Final = {
    "barograph_agent_rows_dropped_total": "dropped by agents",
    "barograph_collector_rejected_total": "rejected by the collector",
}
_FIGURES: Final = {
    "barograph_agent_intervals_stored_total": "intervals stored since the collector started",
    "barograph_collector_queue_rows": "rows waiting to be written",
    "barograph_collector_lag_seconds": "age in seconds of the oldest of them",
    "barograph_modeler_refit_backlog": "classes waiting to be refitted",
    "barograph_modeler_held_jobs": "jobs not learned from yet",
    "barograph_alerts_jobs_hidden": "jobs beyond the limit of the alerts metrics",
}


@dataclass
class ScrapedDaemon:
    """One daemon. beat_at: Unix seconds of its heartbeat, None where it does not answer: `error` says why."""

    name: str
    url: str
    version: str = ""
    beat_at: float | None = None
    stalled: bool = False
    error: str = ""


class DaemonMetrics:
    """The metrics of the daemons, scraped for all viewers once in MAX_AGE seconds. Thread-safe.

    urls: of metrics, by daemon. clock: seconds.
    """

    def __init__(self, urls: Mapping[str, str], clock: Callable[[], float]) -> None:
        self.urls, self._clock = dict(urls), clock
        self._lock = threading.Lock()
        self._scraped: dict[str, list[Sample] | str] = {}
        self._at = -float("inf")

    def scraped(self) -> Mapping[str, list[Sample] | str]:
        """The samples of each daemon, or why it has none."""
        with self._lock:
            if self._clock() - self._at >= MAX_AGE:
                self._scraped = {name: self._scrape(url) for name, url in self.urls.items()}
                self._at = self._clock()
            return self._scraped

    def _scrape(self, url: str) -> list[Sample] | str:
        try:
            return scrape(url, SCRAPE_SECONDS, SCRAPE_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return str(getattr(error, "reason", error))


def view(context: ViewContext, metrics: DaemonMetrics) -> dict[str, Any]:
    """The daemons, the rows `lost` by reason, further `figures`, and `events`."""
    daemons: list[ScrapedDaemon] = []
    lost: list[tuple[str, str, float]] = []
    figures: list[tuple[str, float]] = []
    for name, samples in metrics.scraped().items():
        daemons.append(daemon := ScrapedDaemon(name, metrics.urls[name]))
        if isinstance(samples, str):
            daemon.error = samples
            continue
        of = f", {name}" if " " in name else ""  # one of several collectors
        lost += [
            (f"{_LOST[s.name]}{of}", s.labels["reason"], s.value) for s in samples if s.name in _LOST and s.value > 0
        ]
        figures += [(f"{_FIGURES[s.name]}{of}", s.value) for s in samples if s.name in _FIGURES]
        daemon.beat_at = next((s.value for s in samples if s.name == HEARTBEAT), None)
        if daemon.beat_at is None:
            daemon.error = "answers without a heartbeat, expected a daemon of Barograph"
            continue
        daemon.version = next((s.labels.get("version", "") for s in samples if s.name == "barograph_build_info"), "")
        daemon.stalled = context.now - daemon.beat_at > STALLED_SECONDS
    events = context.rows(queries.events()) if context.viewer.operator else []
    return {"daemons": daemons, "lost": lost, "figures": figures, "events": events}
