"""What the modeler shows Prometheus. Scraping changes nothing; series are bounded, what is left out is counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_modeler.learner import Learner
from barograph_modeler.maxima.band import Band

MAX_BANDS: Final = 2000
"""Classes shown, those of the most recently learned workloads first: four series a class and method."""


class ModelerExporter(Collector):
    """Bands, predictions and the modeler's own state."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def collect(self) -> Iterable[Metric]:
        """Build families, add samples, return."""
        yield from self._bands()
        yield from self._workloads()
        learned = CounterMetricFamily(
            "barograph_modeler_intervals_total", "Intervals by what became of them.", labels=["result"]
        )
        learned.add_metric(["learned"], self._learner.learned_intervals)
        learned.add_metric(["withheld"], self._learner.withheld_intervals)
        yield learned
        yield CounterMetricFamily(
            "barograph_modeler_runs_total", "Healthy runs learned from.", value=self._learner.learned_runs
        )
        yield GaugeMetricFamily(
            "barograph_modeler_held_jobs", "Jobs that have begun and are not learned yet.", self._learner.held_jobs
        )

    def _bands(self) -> Iterator[Metric]:
        labels = ["workload", "class", "method"]
        limits = {
            "lower": GaugeMetricFamily(
                "barograph_interval_lower_seconds", "Lower limit of the 95 % band in seconds", labels=labels
            ),
            "expected": GaugeMetricFamily(
                "barograph_interval_expected_seconds", "Median of the interval in seconds", labels=labels
            ),
            "upper": GaugeMetricFamily(
                "barograph_interval_upper_seconds", "Upper limit of the 95 % band in seconds", labels=labels
            ),
        }
        gev = {
            "shape": GaugeMetricFamily(
                "barograph_gev_shape",
                "Shape k of the fitted GEV, Hosking's sign: negative is heavy-tailed",
                labels=labels[:2],
            ),
            "location": GaugeMetricFamily(
                "barograph_gev_location_seconds", "Location of the fitted GEV in seconds", labels=labels[:2]
            ),
            "scale": GaugeMetricFamily(
                "barograph_gev_scale_seconds", "Scale of the fitted GEV in seconds", labels=labels[:2]
            ),
        }
        every = list(self._every_class())
        for workload, class_id, bands in every[:MAX_BANDS]:
            for band in bands:
                for name, family in limits.items():
                    family.add_metric([workload, class_id, band.method], getattr(band, name))
                for name, family in gev.items() if band.gev else ():
                    family.add_metric([workload, class_id], getattr(band.gev, name))
        yield from limits.values()
        yield from gev.values()
        yield GaugeMetricFamily(
            "barograph_modeler_classes_hidden", "Classes left out of this exposition.", max(0, len(every) - MAX_BANDS)
        )

    def _every_class(self) -> Iterator[tuple[str, str, list[Band]]]:
        # The learner runs in another thread: lists are taken in one step each.
        for name, workload in reversed(list(self._learner.workloads.items())):
            for class_id, interval in list(workload.intervals.items()):
                if interval.bands:
                    yield name, f"{class_id:016x}", interval.bands

    def _workloads(self) -> Iterator[Metric]:
        predicted = GaugeMetricFamily(
            "barograph_runtime_predicted_seconds",
            "Quantile of the next run's runtime in seconds",
            labels=["workload", "probability"],
        )
        coverage = GaugeMetricFamily(
            "barograph_band_coverage_ratio",
            "Share of later intervals that fell into the 95 % band of their class, as a ratio",
            labels=["workload"],
        )
        outside = CounterMetricFamily(
            "barograph_job_out_of_interval_total",
            "Intervals that fell out of the band of their class.",
            labels=["workload"],
        )
        for name, workload in itertools.islice(reversed(list(self._learner.workloads.items())), MAX_BANDS):
            if (band := workload.runtime) is not None:
                for probability, value in (("0.025", band.lower), ("0.5", band.expected), ("0.975", band.upper)):
                    predicted.add_metric([name, probability], value)
            inside, judged = workload.coverage
            if judged:
                coverage.add_metric([name], inside / judged)
                outside.add_metric([name], judged - inside)
        yield from (predicted, coverage, outside)
