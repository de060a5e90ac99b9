"""The modeler's metrics. Scraping changes no state; the number of series is bounded, and omitted ones are counted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_collector.daemon.families import counter, gauge
from barograph_modeler.bands.coverage import Coverage
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.learning.learner import Learner
from barograph_modeler.maxima.band import Band
from barograph_modeler.recognition.changes import ChangeWatch
from barograph_modeler.serving.forecast_metrics import (
    PROBABILITIES,
    feature_families,
    forecast_families,
    latest_predictions,
)

MAX_BANDS: Final = 2000
"""Classes exposed, those of the most recently learned workloads first; each has at most thirteen series."""
_LIMITS: Final = {
    "lower": "Lower limit of the 95 % band in seconds",
    "expected": "Median of the interval in seconds",
    "upper": "Upper limit of the 95 % band in seconds",
}
_GEV: Final = {
    "shape": ("barograph_gev_shape", "Shape k of the fitted GEV, Hosking's sign: negative is heavy-tailed"),
    "location": ("barograph_gev_location_seconds", "Location of the fitted GEV in seconds"),
    "scale": ("barograph_gev_scale_seconds", "Scale of the fitted GEV in seconds"),
}


class ModelerExporter(Collector):
    """Metric families of bands, predictions and the modeler's own state."""

    def __init__(
        self, learner: Learner, forecaster: Forecaster, features: FeatureForecaster, changes: ChangeWatch
    ) -> None:
        self._learner = learner
        self._changes = changes
        self._forecaster = forecaster
        self._features = features

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        learner = self._learner
        yield from self._bands()
        yield from self._workloads()
        yield from forecast_families(self._forecaster)
        yield from feature_families(self._features)
        changes = itertools.islice(self._changes.changes(), MAX_BANDS)
        yield gauge(
            "barograph_change_runtime_ratio",
            "Runtimes since a change over those before, where these are known to differ, as a ratio.",
            (([name, change.what], change.ratio) for name, change in changes),
            "workload",
            "change",
        )
        by_result = ((["learned"], learner.learned_intervals), (["withheld"], learner.withheld_intervals))
        yield counter(
            "barograph_modeler_intervals_total", "Intervals that were learned or withheld.", by_result, "result"
        )
        yield counter("barograph_modeler_runs_total", "Healthy runs learned from.", learner.learned_runs)
        text = "Jobs that have begun and are not learned yet."
        yield gauge("barograph_modeler_held_jobs", text, learner.held_jobs)
        text = "Jobs that were given up because there were too many, of the users with most jobs."
        yield counter("barograph_modeler_evicted_jobs_total", text, learner.evicted_jobs)
        yield gauge("barograph_modeler_classes", "Classes with a model.", learner.classes)
        yield gauge("barograph_modeler_refit_backlog", "Classes waiting to be fitted again.", learner.waiting)
        yield from self._refits()
        by_reason = (([reason], learner.closed_regimes[reason]) for reason in ("accepted", "drift"))
        yield counter(
            "barograph_modeler_regimes_closed_total", "Regimes closed, by what closed them.", by_reason, "reason"
        )

    def _refits(self) -> Iterator[Metric]:
        by = [(["modeler"], self._learner.fitted_here), (["workers"], self._learner.fitted_elsewhere)]
        yield counter("barograph_modeler_refits_total", "Fits of classes, by who computed them.", by, "by")
        both = [one for one in (self._learner.workers, self._forecaster.library.workers) if one is not None]
        text = "Times at which the workers were given up."
        yield counter("barograph_modeler_refit_failures_total", text, sum(one.failures for one in both))
        text = "Whether the workers are given up until they fit again: 1 or 0"
        yield gauge("barograph_modeler_refit_workers_failed", text, int(any(one.is_failed for one in both)))

    def _bands(self) -> Iterator[Metric]:
        every = list(self._every_class())
        bands = [
            (workload, name, band, trusted) for workload, name, those, trusted in every[:MAX_BANDS] for band in those
        ]
        fits = [([workload, name], band.gev, trusted) for workload, name, band, trusted in bands if band.gev]
        for limit, text in _LIMITS.items():
            samples = (([workload, name, band.method], getattr(band, limit)) for workload, name, band, _ in bands)
            yield gauge(f"barograph_interval_{limit}_seconds", text, samples, "workload", "class", "method")
        for parameter, (family, text) in _GEV.items():
            yield gauge(family, text, ((key, getattr(gev, parameter)) for key, gev, _ in fits), "workload", "class")
        text = "Whether fits by PWM and by MOM agree on the GEV: 1 or 0"
        yield gauge(
            "barograph_gev_trusted", text, ((key, int(trusted)) for key, _, trusted in fits), "workload", "class"
        )
        text = "Classes left out of this exposition."
        yield gauge("barograph_modeler_classes_hidden", text, max(0, len(every) - MAX_BANDS))

    def _every_class(self) -> Iterator[tuple[str, str, tuple[Band, ...], bool]]:
        for name, workload in reversed(self._learner.workloads.items()):
            for class_id, interval in workload.intervals.items():
                if bands := interval.bands:
                    yield name, f"{class_id:016x}", bands, interval.trusted

    def _workloads(self) -> Iterator[Metric]:
        coverage, judged = [], []
        for name, workload in itertools.islice(reversed(self._learner.workloads.items()), MAX_BANDS):
            for kind, seen in (("interval", workload.interval_coverage), ("runtime", workload.runtime_coverage)):
                results = _results(seen)
                if not math.isnan(seen.ratio):
                    coverage.append(([name, kind], seen.ratio))
                if any(results.values()):
                    judged += [([name, kind, result], count) for result, count in results.items()]
        yield gauge(
            "barograph_runtime_predicted_seconds",
            "Quantile of the next run's runtime in seconds",
            (
                ([one.workload, p], value)
                for one in latest_predictions(self._forecaster)
                for p, value in zip(PROBABILITIES, one[1:4], strict=True)
            ),
            "workload",
            "probability",
        )
        yield gauge(
            "barograph_band_coverage_ratio",
            "Share of later intervals or runs of healthy jobs that fell into their 95 % band, as a ratio",
            coverage,
            "workload",
            "kind",
        )
        yield counter(
            "barograph_band_judged_total",
            "Later intervals or runs for which there was a band, by where they fell; withheld: of jobs that alarmed.",
            judged,
            "workload",
            "kind",
            "result",
        )


def _results(seen: Coverage) -> dict[str, int]:
    withheld = seen.withheld_inside + seen.withheld_outside
    return {"inside": seen.inside, "outside": seen.outside, "withheld": withheld}
