"""`barograph alerts`: wires the scorer to the log and to Prometheus."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing

from barograph_agent.settings.sources import Configuration
from barograph_agent.system.clock import CLOCK
from barograph_alerts.settings import AlertsSettings
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.options import run_daemon
from barograph_collector.daemon.runner import READ_SECONDS, Output, serve
from barograph_collector.daemon.settings import load_key
from barograph_collector.daemon.source import LogSource

TABLES = [
    "paces",
    "bands",
    "events",
    "sites",
    "jobs",
    "assignments",
    "features",
    "predictions",
    "node_blocks",
    "workers",
    "phases",
    "nodes",
    "pressures",
    "blocks",
    "silences",
    "signatures",
    "runs",
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the alerts daemon until SIGTERM or SIGINT; returns its exit status."""
    return run_daemon(AlertsSettings, "Judge running jobs against the history of their workload.", _serve, argv)


def _serve(configuration: Configuration[AlertsSettings]) -> int:
    from barograph_alerts.export.exporter import AlertsExporter
    from barograph_alerts.processor import Scorer
    from barograph_alerts.recall import Recall
    from barograph_alerts.restore import Restore

    settings = configuration.settings
    scorer = Scorer(alpha=settings.alpha, margin=settings.margin, applications=configuration.applications)
    scorer.names_others = settings.processes == "all"
    exporter = AlertsExporter(scorer, labels=settings.labels)

    def apply() -> None:
        now = configuration.settings
        scorer.judge_by(alpha=now.alpha, margin=now.margin, applications=configuration.applications)
        scorer.names_others = now.processes == "all"
        exporter.labels = now.labels

    key, still = load_key(settings.key), threading.Lock()
    restore = Restore(scorer)
    recall = Recall(scorer, lambda: LogReader(settings.collector, READ_SECONDS, key), CLOCK.monotonic)

    def prepare(source: LogSource) -> None:
        restore(source, CLOCK.now())
        recall.begin(source)

    with closing(recall):

        def each_cycle() -> Iterable[Output]:
            recall.poll(still)
            return ()

        return serve(
            scorer, TABLES, exporter, configuration, apply=apply, prepare=prepare, each_cycle=each_cycle, still=still
        )


if __name__ == "__main__":
    sys.exit(main())
