"""One application: how it varies and scales, and how good what is said of it has been."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from barograph_dashboards.board import board, link, variable
from barograph_dashboards.palette import BLUE, GREEN, GREY, ORANGE, RED
from barograph_dashboards.panels import BARS, YES_OR_NO, AnyPanel, Query, by_ranks, series, stat, table

UID: Final = "barograph-application"
APPLICATION: Final = 'application="$application"'
WORKLOADS: Final = 'workload=~"${application:regex}@.*"'
ERROR: Final = f"max(barograph_prediction_relative_error{{{APPLICATION}}})"
ERROR_MEANS: Final = "Median absolute relative error of the latest 200 predicted runtimes."
HELD: Final = f"min(barograph_prediction_coverage_ratio{{{APPLICATION}}})"
EARLY: Final = "No prediction of this application has been scored yet"


def application() -> Dashboard:
    """One application on one cluster, chosen by the variable `application`."""
    every = 'label_values({__name__=~"barograph_.+", workload!~"|canary/.*"}, workload)'
    return board(
        UID,
        "Barograph / Application",
        "One application: variability by scale, the scaling projection, how good predictions were, shapes of the GEV.",
        since="now-7d",
        refresh="5m",
        variables=[variable("application", every, label="Application", regex="/^([^@]+)@/")],
        links=[link("Facility", "/d/barograph-facility")],
        rows={"": _now(), "Scales": _scales(), "How good it was": _accuracy(), "Tails of intervals": _tails()},
    )


def _now() -> list[AnyPanel]:
    def in_band(kind: str) -> str:
        judged = f'sum(barograph_band_judged_total{{{WORKLOADS}, kind="{kind}", result%s}})'
        return judged % '="inside"' + " / " + judged % '=~"inside|outside"'

    return [
        stat("Running", "Jobs of this application that run now, or ended disturbed a moment ago.",
             f"count(barograph_job_info{{{WORKLOADS}}}) or vector(0)"),
        stat("Error of predictions", ERROR_MEANS, ERROR, unit="percentunit", decimals=1),
        stat("Predictions held", "Share of predicted runs that ended within their 95 % interval.", HELD,
             unit="percentunit", decimals=1),
        stat("Predictions scored", "Runs that this share is of, those that alarmed or failed too.",
             f"sum(barograph_predictions_scored_total{{{APPLICATION}}})"),
        stat("Intervals in their band", "Share of healthy intervals in the 95 % band published before them, over all "
             "workloads since the modeler's start.", in_band("interval"), unit="percentunit", decimals=1),
        stat("Runs in their band", "The same of whole runs of workloads with three runs and more.",
             in_band("runtime"), unit="percentunit", decimals=1),
    ]  # fmt: skip


def _ranks(values: str) -> str:
    """Move the number of ranks from the workload into a label."""
    return f'label_replace({values}, "ranks", "$1", "workload", ".*@([0-9]+)x.*")'


def _scales() -> list[AnyPanel]:
    def projected(probability: str) -> str:
        return f'max by (ranks) (barograph_runtime_projected_seconds{{{APPLICATION}, probability="{probability}"}})'

    def runtime(probability: str) -> str:
        return f'max by (workload) (barograph_runtime_predicted_seconds{{{WORKLOADS}, probability="{probability}"}})'

    dashed = {"custom.lineStyle": {"fill": "dash", "dash": [6, 6]}, "custom.show": "lines"}
    spread = f"({runtime('0.975')} - {runtime('0.025')}) / {runtime('0.5')}"
    interval = (
        f'(barograph_interval_upper_seconds{{{WORKLOADS}, method!="gev"}} - barograph_interval_lower_seconds) '
        "/ barograph_interval_expected_seconds"
    )
    no_run = "No run of this application has ended yet"
    return [
        by_ranks("Scaling projection", "Runtime over ranks of the problem that was run last, with the interval that "
                 "holds 95 % of runs. Points are medians of runs; beyond the last of them it is extrapolated.",
                 [Query(projected("0.975"), "Upper limit", GREY, "s", properties=dashed),
                  Query(projected("0.5"), "Expected", ORANGE, "s", properties={"custom.show": "lines"}),
                  Query(projected("0.025"), "Lower limit", GREY, "s", properties=dashed),
                  Query(f"max by (ranks) (barograph_runtime_median_seconds{{{APPLICATION}}})", "Runs", BLUE, "s",
                        properties={"custom.show": "points"})],
                 unit="s", log=True, empty=no_run),
        by_ranks("Variability by scale", "Width of the 95 % bands over their median: of whole runs, and of intervals, "
                 "the median over classes. Noise that grows with the ranks shows here first.",
                 [Query(f"max by (ranks) ({_ranks(spread)})", "Runs", BLUE, "percentunit"),
                  Query(f"quantile by (ranks) (0.5, {_ranks(interval)})", "Intervals", ORANGE, "percentunit")],
                 unit="percentunit", empty="No band yet"),
        table("Workloads", "What the next run of each workload takes, and its speedup over the smallest scale of its "
              "problem.",
              ["workload",
               Query(runtime("0.5"), "Expected", unit="s"),
               Query(runtime("0.025"), "Lower limit", unit="s"),
               Query(runtime("0.975"), "Upper limit", unit="s"),
               Query(f"max by (workload) (barograph_speedup_predicted_ratio{{{WORKLOADS}}})", "Speedup",
                     properties={"decimals": 2})],
              sort_by="Expected", empty=no_run),
    ]  # fmt: skip


def _accuracy() -> list[AnyPanel]:
    coverage = f'avg(barograph_band_coverage_ratio{{{WORKLOADS}, kind="%s"}})'
    results = {"inside": GREEN, "outside": RED, "withheld": ORANGE, "failed": GREY}
    return [
        series("Error of predictions", ERROR_MEANS, [Query(ERROR, "median error", BLUE)], unit="percentunit",
               minimum=0, span=8, empty=EARLY),
        series("Coverage", "Share that lay within what was said before. All should be near 95 %, which they promise.",
               [Query(HELD, "predictions", BLUE),
                Query(coverage % "interval", "bands of intervals", ORANGE),
                Query(coverage % "runtime", "bands of runs", GREEN)],
               unit="percentunit", span=8, empty=EARLY),
        series("Predicted runs by how they ended", "In an hour. Withheld: they alarmed. Failed: their exit "
               "status was not 0.",
               [Query(f'sum(increase(barograph_predictions_scored_total{{{APPLICATION}, result="{result}"}}'
                      "[1h]))", result, color, step="1h", properties=BARS) for result, color in results.items()],
               minimum=0, span=8, stacked=True, empty=EARLY),
    ]  # fmt: skip


def _tails() -> list[AnyPanel]:
    shape = f"barograph_gev_shape{{{WORKLOADS}}}"
    heaviest = f"max by (workload, class) (barograph_gev_%s and on (workload, class) bottomk(10, {shape}))"
    none = "No class with enough intervals"
    return [
        series("Shape of the GEV", "The smallest shape k of any class of each workload, in Hosking's sign: below 0 the "
               "tail is heavy, and the longest of many intervals grows with the scale. A workload whose shape falls "
               "has begun to be interrupted.", [Query(f"min by (workload) ({shape})", "{{workload}}")], empty=none),
        series("Fits that can be believed", "Share of classes of each workload where two ways to fit the GEV agree.",
               [Query(f"avg by (workload) (barograph_gev_trusted{{{WORKLOADS}}})", "{{workload}}")],
               unit="percentunit", minimum=0, empty=none),
        table("Classes with the heaviest tails", "The ten classes with the smallest shape.",
              ["workload", "class",
               Query(f"max by (workload, class) (bottomk(10, {shape}))", "Shape", properties={"decimals": 3}),
               Query(heaviest % "location_seconds", "Location", unit="s"),
               Query(heaviest % "scale_seconds", "Scale", unit="s"),
               Query(heaviest % "trusted", "Trusted", properties=YES_OR_NO)],
              empty=none),
    ]  # fmt: skip
