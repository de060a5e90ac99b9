"""The forecaster's part of what the modeler shows Prometheus: predictions of whole runs, and how good they were."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import Seen
from barograph_modeler.forecasts.scoreboard import RESULTS, Scoreboard

MAX_WORKLOADS: Final = 2000
"""Workloads shown, those of the most recently learned applications first."""
MAX_CURVES: Final = 200
"""Applications whose curve is shown, the most recently learned ones: 41 series each at most."""


def latest(forecaster: Forecaster) -> list[Seen]:
    """The workloads shown."""
    every = (one for known in reversed(list(forecaster.library.published.values())) for one in reversed(known.seen))
    return list(itertools.islice(every, MAX_WORKLOADS))


def forecast_families(forecaster: Forecaster) -> Iterator[Metric]:
    """Families and their samples, apart from predicted runtimes, which the learner's bands share."""
    speedup = GaugeMetricFamily(
        "barograph_speedup_predicted_ratio",
        "Time on the fewest ranks this problem was run on over the time expected here, as a ratio",
        labels=["workload"],
    )
    for one in latest(forecaster):
        speedup.add_metric([one.workload], one.speedup)
    yield speedup
    yield from _curves(forecaster)
    yield from _scores(forecaster.predictions.scoreboard, "barograph_prediction", "predicted runtimes")
    yield CounterMetricFamily(
        "barograph_modeler_predictions_refused_total",
        "Jobs of known applications for which no prediction was dared.",
        value=forecaster.refused,
    )
    yield CounterMetricFamily(
        "barograph_modeler_fits_failed_total", "Fits of applications that broke.", value=forecaster.library.failed
    )
    yield GaugeMetricFamily("barograph_modeler_applications", "Applications with a predictor.", len(forecaster.library))
    yield GaugeMetricFamily(
        "barograph_modeler_problems",
        "Applications with one set of parameters each, of known runs.",
        len(forecaster.history),
    )
    yield GaugeMetricFamily(
        "barograph_modeler_fit_backlog",
        "Applications whose latest runs are in no predictor yet.",
        forecaster.library.waiting,
    )


def _curves(forecaster: Forecaster) -> Iterator[Metric]:
    labels = ["application", "problem", "ranks"]
    projected = GaugeMetricFamily(
        "barograph_runtime_projected_seconds",
        "Quantile of the runtime of the latest problem of an application over ranks, in seconds",
        labels=[*labels, "probability"],
    )
    median = GaugeMetricFamily(
        "barograph_runtime_median_seconds", "Median of the runtimes behind it, in seconds", labels=labels
    )
    for known in itertools.islice(reversed(list(forecaster.library.published.values())), MAX_CURVES):
        if known.curve is None:
            continue
        place = [str(known.application), known.curve.problem]
        for ranks, *limits in known.curve.points:
            for probability, seconds in zip(("0.025", "0.5", "0.975"), limits, strict=True):
                projected.add_metric([*place, str(ranks), probability], seconds)
        for ranks, seconds in known.curve.medians:
            median.add_metric([*place, str(ranks)], seconds)
    yield from (projected, median)


def feature_families(features: FeatureForecaster) -> Iterator[Metric]:
    """The same of predictions that were made of features."""
    yield from _scores(
        features.predictions.scoreboard, "barograph_feature_prediction", "runtimes predicted from features"
    )
    yield GaugeMetricFamily(
        "barograph_modeler_feature_models", "Applications with a model of features.", len(features.library.published)
    )
    yield CounterMetricFamily(
        "barograph_modeler_feature_fits_failed_total", "Fits of features that broke.", value=features.library.failed
    )
    yield GaugeMetricFamily(
        "barograph_modeler_feature_fit_backlog",
        "Applications whose features wait to be learned.",
        features.library.waiting,
    )


def _scores(scoreboard: Scoreboard, prefix: str, what: str) -> Iterator[Metric]:
    error = GaugeMetricFamily(
        f"{prefix}_relative_error",
        f"Median of the latest 200 absolute relative errors of {what}; 0.1 is 10 %",
        labels=["application"],
    )
    coverage = GaugeMetricFamily(
        f"{prefix}_coverage_ratio",
        "Share of runs that ended well and within the 95 % interval predicted for them, as a ratio",
        labels=["application"],
    )
    scored = CounterMetricFamily(
        f"{prefix}s_scored_total",
        "Predicted runs that have ended, by where they fell; withheld: alarmed, failed: other exit status.",
        labels=["application", "result"],
    )
    for application, score in list(scoreboard.scores.items()):
        if not math.isnan(score.coverage):
            error.add_metric([application], score.median_error)
            coverage.add_metric([application], score.coverage)
        for result in RESULTS:
            scored.add_metric([application, result], score.results[result])
    yield from (error, coverage, scored)
