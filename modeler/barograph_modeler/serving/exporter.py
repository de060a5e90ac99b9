"""What the modeler shows Prometheus. Scraping changes nothing; series are bounded, what is left out is counted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_modeler.bands.class_model import ClassModel
from barograph_modeler.bands.coverage import Coverage
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.learning.learner import Learner
from barograph_modeler.serving.forecast_metrics import feature_families, forecast_families, latest

MAX_BANDS: Final = 2000
"""Classes shown, those of the most recently learned workloads first: ten series each at most."""


class ModelerExporter(Collector):
    """Bands, predictions and the modeler's own state."""

    def __init__(self, learner: Learner, forecaster: Forecaster, features: FeatureForecaster) -> None:
        self._learner = learner
        self._forecaster = forecaster
        self._features = features

    def collect(self) -> Iterable[Metric]:
        """Build families, add samples, return."""
        yield from self._bands()
        yield from self._workloads()
        yield from forecast_families(self._forecaster)
        yield from feature_families(self._features)
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
        yield GaugeMetricFamily("barograph_modeler_classes", "Classes there are.", self._learner.classes)
        yield GaugeMetricFamily(
            "barograph_modeler_refit_backlog", "Classes waiting to be fitted again.", len(self._learner.backlog)
        )
        closed = CounterMetricFamily(
            "barograph_modeler_regimes_closed_total", "Regimes closed, by what closed them.", labels=["reason"]
        )
        for reason in ("accepted", "drift"):
            closed.add_metric([reason], self._learner.closed_regimes[reason])
        yield closed

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
        trusted = GaugeMetricFamily(
            "barograph_gev_trusted", "Whether fits by PWM and by MOM agree on the GEV: 1 or 0", labels=labels[:2]
        )
        every = list(self._every_class())
        for workload, class_id, interval in every[:MAX_BANDS]:
            for band in interval.bands:
                for name, family in limits.items():
                    family.add_metric([workload, class_id, band.method], getattr(band, name))
                for name, family in gev.items() if band.gev else ():
                    family.add_metric([workload, class_id], getattr(band.gev, name))
                if band.gev:
                    trusted.add_metric([workload, class_id], int(interval.trusted))
        yield from limits.values()
        yield from gev.values()
        yield trusted
        yield GaugeMetricFamily(
            "barograph_modeler_classes_hidden", "Classes left out of this exposition.", max(0, len(every) - MAX_BANDS)
        )

    def _every_class(self) -> Iterator[tuple[str, str, ClassModel]]:
        # The learner runs in another thread: lists are taken in one step each.
        for name, workload in reversed(list(self._learner.workloads.items())):
            for class_id, interval in list(workload.intervals.items()):
                if interval.bands:
                    yield name, f"{class_id:016x}", interval

    def _workloads(self) -> Iterator[Metric]:
        predicted = GaugeMetricFamily(
            "barograph_runtime_predicted_seconds",
            "Quantile of the next run's runtime in seconds",
            labels=["workload", "probability"],
        )
        # Three runs of a workload say more about the next one than all other scales.
        limits = {one.workload: one[1:4] for one in latest(self._forecaster)}
        coverage = GaugeMetricFamily(
            "barograph_band_coverage_ratio",
            "Share of later intervals or runs of healthy jobs that fell into their 95 % band, as a ratio",
            labels=["workload", "kind"],
        )
        judged = CounterMetricFamily(
            "barograph_band_judged_total",
            "Later intervals or runs for which there was a band, by where they fell; withheld: of jobs that alarmed.",
            labels=["workload", "kind", "result"],
        )
        outside = CounterMetricFamily(
            "barograph_job_out_of_interval_total",
            "Intervals that fell out of the band of their class.",
            labels=["workload"],
        )
        for name, workload in itertools.islice(reversed(list(self._learner.workloads.items())), MAX_BANDS):
            if (band := workload.runtime) is not None:
                limits[name] = (band.lower, band.expected, band.upper)
            for kind, seen in (("interval", workload.interval_coverage), ("runtime", workload.runtime_coverage)):
                results = _results(seen)
                if not math.isnan(seen.ratio):
                    coverage.add_metric([name, kind], seen.ratio)
                for result, count in results.items() if any(results.values()) else ():
                    judged.add_metric([name, kind, result], count)
            seen = workload.interval_coverage
            if any(_results(seen).values()):
                outside.add_metric([name], seen.outside + seen.withheld_outside)
        for name, values in limits.items():
            for probability, value in zip(("0.025", "0.5", "0.975"), values, strict=True):
                predicted.add_metric([name, probability], value)
        yield from (predicted, coverage, judged, outside)


def _results(seen: Coverage) -> dict[str, int]:
    withheld = seen.withheld_inside + seen.withheld_outside
    return {"inside": seen.inside, "outside": seen.outside, "withheld": withheld}
