"""Out-of-sample coverage of the bands, from the metrics of the modeler. No table of the log has it."""

from __future__ import annotations

import contextlib
import http.client
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from barograph.views.modeler import scrape

ANSWER_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 64 * 2**20
METRIC: Final = "barograph_band_judged_total"


class BandCoverage(NamedTuple):
    """Numbers of later values of healthy runs inside and outside the bands of a workload. kind: interval or runtime."""

    workload: str
    kind: str
    inside: int
    outside: int


def band_coverage(modelers: Iterable[str], workloads: Iterable[str]) -> list[BandCoverage]:
    """The coverage of each workload that has any, by the modelers that answer."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for modeler in modelers:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            for sample in scrape(f"{modeler.rstrip('/')}/metrics", ANSWER_SECONDS, ANSWER_BYTES):
                if sample.name == METRIC:
                    labels = sample.labels
                    counts[labels["workload"], labels["kind"], labels["result"]] += int(sample.value)
    found = [
        BandCoverage(workload, kind, counts[workload, kind, "inside"], counts[workload, kind, "outside"])
        for workload in workloads
        for kind in ("interval", "runtime")
    ]
    return [one for one in found if one.inside + one.outside]
