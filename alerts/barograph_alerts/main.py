"""`barograph alerts`: wires the scorer to the log and to Prometheus."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from barograph_alerts.settings import AlertsSettings
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.options import parse
from barograph_collector.daemon.runner import serve

TABLES = ["paces", "bands", "events", "sites", "jobs", "predictions", "node_blocks", "blocks", "runs"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the alerts daemon until SIGTERM or SIGINT; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="barograph alerts", description="Judge running jobs against the history of their workload."
    )
    configuration = parse(parser, AlertsSettings, argv, os.environ)
    settings = configuration.settings

    from barograph_alerts.export.exporter import AlertsExporter
    from barograph_alerts.processor import Scorer

    scorer = Scorer(alpha=settings.alpha, margin=settings.margin, applications=configuration.applications)
    exporter = AlertsExporter(scorer, labels=settings.labels)

    def apply() -> None:
        now = configuration.settings
        scorer.judge_by(alpha=now.alpha, margin=now.margin, applications=configuration.applications)
        exporter.labels = now.labels

    def prepare(follower: Follower, reader: LogReader) -> None:
        # Jobs that have their final verdict are not judged again, and nothing before the first open one is read.
        for table in ("scores", "jobs"):
            for page in reader.read_all(table):
                scorer.take(table, page.columns, time.time())
        follower.offsets["blocks"] = follower.offsets["node_blocks"] = scorer.first_open_offset

    return serve(scorer, TABLES, exporter, configuration, apply=apply, prepare=prepare)


if __name__ == "__main__":
    sys.exit(main())
