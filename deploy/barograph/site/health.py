"""The pipeline itself: whether the daemons are alive, and what was dropped or refused, as their metrics say it."""

from __future__ import annotations

import http.client
import urllib.request
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from barograph.site import queries
from barograph.site.desk import RequestContext
from barograph.site.log import Row
from barograph_collector.daemon.service import HEARTBEAT

SCRAPE_SECONDS: Final = 2.0
SCRAPE_BYTES: Final = 8 * 2**20
STILL_SECONDS: Final = 60.0
"""A daemon whose heart has not beaten for this long stands still, as the alerting rules have it."""
_LOST: Final = {
    "barograph_agent_rows_dropped_total": "given up by agents",
    "barograph_collector_rejected_total": "not taken by the collector",
}
_FIGURES: Final = {
    "barograph_agent_intervals_stored_total": "intervals stored since the collector started",
    "barograph_collector_queue_rows": "rows that wait to be written",
    "barograph_collector_lag_seconds": "seconds that the oldest of them has waited",
    "barograph_modeler_refit_backlog": "classes that wait to be fitted again",
    "barograph_modeler_held_jobs": "jobs that are not learned yet",
    "barograph_alerts_jobs_hidden": "jobs beyond the limit of the alerts metrics",
}


@dataclass(frozen=True)
class DaemonHealth:
    """One daemon. `beat_at` is in Unix seconds, None where it does not answer; `trouble` says why."""

    name: str
    url: str
    version: str
    beat_at: float | None
    still: bool
    trouble: str


@dataclass(frozen=True)
class HealthView:
    """The page of the pipeline. `lost`: (what, reason, how many); `figures`: (what, how much)."""

    daemons: list[DaemonHealth]
    lost: list[tuple[str, str, float]]
    figures: list[tuple[str, float]]
    events: list[Row]


def view(desk: RequestContext, urls: dict[str, str]) -> HealthView:
    """Scrape the daemons, by name the addresses of their metrics, and read the diary. Raises Away."""
    daemons: list[DaemonHealth] = []
    lost: list[tuple[str, str, float]] = []
    figures: list[tuple[str, float]] = []
    for name, url in urls.items():
        try:
            samples = _scrape(url)
        except (OSError, http.client.HTTPException, ValueError) as error:
            daemons.append(DaemonHealth(name, url, "", None, False, str(getattr(error, "reason", error))))
            continue
        daemons.append(_daemon(name, url, samples, desk.now))
        lost += [(_LOST[n], labels["reason"], value) for n, labels, value in samples if n in _LOST and value > 0]
        figures += [(_FIGURES[n], value) for n, _, value in samples if n in _FIGURES]
    events = desk.ask(queries.events()) if desk.viewer.operator else []
    return HealthView(daemons, lost, figures, events)


Samples = list[tuple[str, dict[str, str], float]]


def _scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=SCRAPE_SECONDS) as answer:
        text = answer.read(SCRAPE_BYTES).decode()
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def _daemon(name: str, url: str, samples: Samples, now: float) -> DaemonHealth:
    beats = [value for n, _, value in samples if n == HEARTBEAT]
    versions = [labels.get("version", "") for n, labels, _ in samples if n == "barograph_build_info"]
    if not beats:
        return DaemonHealth(name, url, "", None, False, "answers without a heartbeat, expected a daemon of Barograph")
    return DaemonHealth(name, url, versions[0] if versions else "", beats[0], now - beats[0] > STILL_SECONDS, "")
