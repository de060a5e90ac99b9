"""What bands have held, from the metrics of the modeler: its scoreboard is in no table."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Iterable
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

ANSWER_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 64 * 2**20
METRIC: Final = "barograph_band_judged"


class BandCoverage(NamedTuple):
    """How many later values of healthy runs fell into the bands of a workload. kind: interval or runtime."""

    workload: str
    kind: str
    inside: int
    outside: int


def judged(modeler: str, workloads: Iterable[str]) -> list[BandCoverage]:
    """Those of the workloads that were judged at all; none where the modeler does not answer."""
    try:
        with urllib.request.urlopen(f"{modeler.rstrip('/')}/metrics", timeout=ANSWER_SECONDS) as reply:
            text = reply.read(ANSWER_BYTES).decode()
        families = [family for family in text_string_to_metric_families(text) if family.name == METRIC]
    except (OSError, http.client.HTTPException, ValueError):
        return []
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for sample in (sample for family in families for sample in family.samples if sample.name == f"{METRIC}_total"):
        labels = sample.labels
        counts.setdefault((labels["workload"], labels["kind"]), {})[labels["result"]] = int(sample.value)
    found = []
    for workload in workloads:
        for kind in ("interval", "runtime"):
            count = counts.get((workload, kind), {})
            one = BandCoverage(workload, kind, count.get("inside", 0), count.get("outside", 0))
            if one.inside + one.outside:
                found.append(one)
    return found
