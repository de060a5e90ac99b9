"""Metric families of the forecasters: predicted runtimes, and the accuracy of predictions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from barograph_collector.daemon.families import counter, gauge
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.curve import SCALES
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import Published, WorkloadPrediction
from barograph_modeler.forecasts.scoreboard import RESULTS, Scoreboard

MAX_WORKLOADS: Final = 2000
"""Workloads exposed, those of the most recently learned applications first."""
MAX_CURVES: Final = 200
"""Applications whose curve is exposed, the most recently learned first; each has at most 41 series."""
PROBABILITIES: Final = ("0.025", "0.5", "0.975")
"""Label values for lower limit, median and upper limit."""


def latest_predictions(forecaster: Forecaster) -> list[WorkloadPrediction]:
    """Predictions of the exposed workloads."""
    every = (one for known in reversed(list(forecaster.library.published.values())) for one in reversed(known.seen))
    return list(itertools.islice(every, MAX_WORKLOADS))


def forecast_families(forecaster: Forecaster) -> Iterator[Metric]:
    """All families but predicted runtimes, which include the learner's bands."""
    yield gauge(
        "barograph_speedup_predicted_ratio",
        "Time expected on the fewest ranks this problem was run on over that expected here, as a ratio",
        (([one.workload], one.speedup) for one in latest_predictions(forecaster)),
        "workload",
    )
    yield from _curves(forecaster)
    yield from _amdahl(forecaster)
    yield from _weights(forecaster)
    yield from _scores(forecaster.predictions.scoreboard, "barograph_prediction", "predicted runtimes")
    library = forecaster.library
    text = "Jobs of known applications whose prediction was refused."
    yield counter("barograph_modeler_predictions_refused_total", text, forecaster.refused)
    yield counter("barograph_modeler_fits_failed_total", "Fits of applications that failed.", library.failed)
    yield gauge("barograph_modeler_applications", "Applications with a predictor.", len(library))
    text = "Applications with one set of parameters each, of known runs."
    yield gauge("barograph_modeler_problems", text, len(forecaster.history))
    text = "Applications whose latest runs are in no predictor yet."
    yield gauge("barograph_modeler_fit_backlog", text, library.waiting)


def _newest(forecaster: Forecaster) -> Iterator[Published]:
    """The exposed applications, the most recently learned first."""
    return itertools.islice(reversed(list(forecaster.library.published.values())), MAX_CURVES)


def _curves(forecaster: Forecaster) -> Iterator[Metric]:
    labels = ("application", "problem", "ranks")
    curves = [
        ([str(known.application), known.curve.problem], known.curve)
        for known in _newest(forecaster)
        if known.curve is not None
    ]
    yield gauge(
        "barograph_runtime_projected_seconds",
        "Quantile of the runtime of the latest problem of an application over ranks, in seconds",
        (
            ([*place, str(ranks), probability], seconds)
            for place, curve in curves
            for ranks, *limits in curve.points
            for probability, seconds in zip(PROBABILITIES, limits, strict=True)
        ),
        *labels,
        "probability",
    )
    medians = (([*place, str(ranks)], seconds) for place, curve in curves for ranks, seconds in curve.medians)
    yield gauge("barograph_runtime_median_seconds", "Median of the runtimes behind it, in seconds", medians, *labels)


def _amdahl(forecaster: Forecaster) -> Iterator[Metric]:
    fits = [
        ([str(known.application), known.curve.problem], known.amdahl)
        for known in _newest(forecaster)
        if known.curve is not None and known.amdahl is not None
    ]
    yield gauge(
        "barograph_amdahl_parallel_ratio",
        "Quantile of the parallel share p of the latest problem of an application, as a ratio",
        (([*place, p], value) for place, one in fits for p, value in zip(PROBABILITIES, one.parallel, strict=True)),
        *("application", "problem", "probability"),
    )
    yield gauge(
        "barograph_amdahl_overhead_ratio",
        "Quantile of tau: time by Amdahl's law over observed time, as a ratio",
        (
            ([*place, str(ranks), p], value)
            for place, one in fits
            for ranks, tau in list(one.overheads.items())[-SCALES:]
            for p, value in zip(PROBABILITIES, tau, strict=True)
        ),
        *("application", "problem", "ranks", "probability"),
    )


def _weights(forecaster: Forecaster) -> Iterator[Metric]:
    yield gauge(
        "barograph_scaling_model_weight_ratio",
        "Weight of a model of scaling in predictions of an application, as a ratio",
        (
            ([str(known.application), case, model], weight)
            for known in _newest(forecaster)
            for case, weights in known.weights.items()
            for model, weight in weights.items()
        ),
        *("application", "case", "model"),
    )
    yield gauge(
        "barograph_prediction_widening_ratio",
        "Factor by which a limit of predictions of an application is moved away, from held-out runs, as a ratio",
        (
            ([str(known.application), scales, limit], factor)
            for known in _newest(forecaster)
            for scales, widening in known.predictor.calibration.widenings.items()
            for limit, factor in (("lower", widening.below), ("upper", widening.above))
        ),
        *("application", "scales", "limit"),
    )


def feature_families(features: FeatureForecaster) -> Iterator[Metric]:
    """Families of predictions from features."""
    library = features.library
    yield from _scores(
        features.predictions.scoreboard, "barograph_feature_prediction", "runtimes predicted from features"
    )
    text = "Applications with a model of features."
    yield gauge("barograph_modeler_feature_models", text, len(library.published))
    yield counter(
        "barograph_modeler_feature_fits_failed_total", "Fits of models of features that failed.", library.failed
    )
    text = "Applications whose features wait to be learned."
    yield gauge("barograph_modeler_feature_fit_backlog", text, library.waiting)


def _scores(scoreboard: Scoreboard, prefix: str, what: str) -> Iterator[Metric]:
    scores = list(scoreboard.scores.items())
    judged = [([application], score) for application, score in scores if not math.isnan(score.coverage)]
    yield gauge(
        f"{prefix}_relative_error",
        f"Median of the latest 200 absolute relative errors of {what}; 0.1 is 10 %",
        ((key, score.median_error) for key, score in judged),
        "application",
    )
    yield gauge(
        f"{prefix}_coverage_ratio",
        "Share of runs that ended well and within the 95 % interval predicted for them, as a ratio",
        ((key, score.coverage) for key, score in judged),
        "application",
    )
    yield counter(
        f"{prefix}s_scored_total",
        "Predicted runs that have ended, by where they fell; withheld: alarmed, failed: other exit status.",
        (([application, result], score.results[result]) for application, score in scores for result in RESULTS),
        "application",
        "result",
    )
