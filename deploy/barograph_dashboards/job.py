"""One job: is it disturbed, since when and by whom; its intervals over their band; when it will end."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from barograph_dashboards.board import board, link, variable
from barograph_dashboards.palette import BLUE, SKY
from barograph_dashboards.panels import AnyPanel, Query, band, series, stat, table

UID: Final = "barograph-job"
JOB: Final = 'job="$job"'
RATE: Final = "[$__rate_interval]"
NEVER: Final = "No such job in this time range"
BAND: Final = 'workload="$workload", method!="gev"'
"""The non-parametric band, whose coverage is counted."""
SCORE: Final = f"max(barograph_job_score{{{JOB}}})"
SLOWDOWN: Final = f"max(barograph_job_slowdown_ratio{{{JOB}}})"
PROJECTED: Final = f"max(barograph_job_runtime_projected_seconds{{{JOB}}})"
RUNTIME: Final = 'barograph_runtime_predicted_seconds{workload="$workload", probability="%s"}'
THICK: Final = {"custom.lineWidth": 2}
SITE: Final = "* on (class) group_left (site) max by (class, site) (barograph_class_info)"


def job() -> Dashboard:
    """One job, chosen by the variable `job`."""
    info = f"barograph_job_info{{{JOB}}}"
    time_in = f"sum by (class) (rate(barograph_job_interval_seconds_sum{{{JOB}}}{RATE}))"
    named = r'/class="(?<value>[^"]+)".*site="(?<text>[^"]+)"/'
    return board(
        UID,
        "Barograph / Job",
        "One job: its score, the sentence, its intervals over their band, and its end.",
        since="now-1h",
        refresh="15s",
        variables=[
            variable("job", "label_values(barograph_job_info, job)", label="Job"),
            variable("workload", f"label_values({info}, workload)"),
            variable("application", f"label_values({info}, workload)", regex="/^([^@]+)@/"),
            variable("class", f"query_result(topk(8, {time_in} {SITE}))", label="Class", regex=named, sort=False),
        ],
        links=[
            link("Facility", "/d/barograph-facility"),
            link("Its application", "/d/barograph-application?var-application=${application:percentencode}"),
        ],
        rows={"": [*_now(), *_verdict()], "Intervals": _intervals(), "Until its end": [_end()]},
    )


def _now() -> list[AnyPanel]:
    began = f"max(barograph_job_start_timestamp_seconds{{{JOB}}})"
    usual = f"max({RUNTIME % '0.5'})"
    return [
        stat("State", "The verdict so far: healthy, slow, stalled, fast, or unknown while too little is known.",
             f"max by (state) (barograph_job_info{{{JOB}}})", empty="Not running", name="{{state}}"),
        stat("Score", "Evidence that the job is disturbed. Above 1 alarms; how much above says how sure it is.",
             SCORE, bad_from=1, decimals=2),
        stat("Slowdown", "Actual over expected time: of the whole job, and once it has alarmed, since the onset.",
             SLOWDOWN, decimals=2),
        stat("Runs for", "Time since its first interval.", f"time() - {began}", unit="s"),
        stat("Will end", "At its pace so far; now, where it has outrun its history.", f"1000 * ({began} + {PROJECTED})",
             unit="dateTimeFromNow", empty="Not known"),
        stat("Runtime over usual", "Projected runtime over the one expected of its workload. 1 is as ever.",
             f"{PROJECTED} / {usual}", empty="Not known", decimals=2),
    ]  # fmt: skip


def _verdict() -> list[AnyPanel]:
    return [
        table("Alarm", "What is to be said of the job while it is disturbed: what it is put down to, and who is to "
              "blame. Members are nodes, or ranks of a job on one node.",
              ["state", "cause", "members",
               Query(f"max by (state, cause, members, sentence) (barograph_job_alarm_info{{{JOB}}}) * on () "
                     f"group_left () {SCORE}", "Score", properties={"decimals": 1}),
               "sentence"],
              height=5, empty="No alarm", widths={"State": 80, "Cause": 110, "Members": 220, "Score": 70}),
        series("Score", "Evidence over time. Above the line alarms.", [Query(SCORE, "score", BLUE)], line_at=1,
               minimum=0, empty=NEVER),
        series("Slowdown", "Actual over expected time. 1 is as ever.", [Query(SLOWDOWN, "slowdown", BLUE)],
               empty=NEVER),
    ]  # fmt: skip


def _interval(selector: str, by: str) -> str:
    """The mean interval within the rate interval, in seconds."""
    part = f"sum by ({by}) (rate(barograph_job_interval_seconds_%s{{{selector}}}{RATE}))"
    return f"{part % 'sum'} / {part % 'count'}"


def _intervals() -> list[AnyPanel]:
    one = f'{JOB}, class="$class"'
    lower, middle, upper = (
        f'max(barograph_interval_{name}_seconds{{{BAND}, class="$class"}})' for name in ("lower", "expected", "upper")
    )
    expected = f"max by (class) (barograph_interval_expected_seconds{{{BAND}}})"
    over = f"({_interval(JOB, 'class')}) / on (class) {expected}"
    return [
        series("Intervals over their band", "The mean interval of the class chosen above, over the band that holds "
               "95 % of single healthy intervals. A mean that leaves the band, or stays near its edge, is slow.",
               [*band(lower, middle, upper, "95 % band"),
                Query(_interval(one, ""), "this job", BLUE, properties=THICK)], unit="s", empty=NEVER),
        series("All classes over what is expected", "Mean interval over the median of its band, of the classes where "
               "the job spends most of its time. A class that rises alone is the phase that is slow.",
               [Query(f"({over}) {SITE}", "{{site}}")], empty="No class with a band"),
        table("Where its time goes", "The classes, each between two call sites, in which the job spends most of its "
              "time.",
              ["site",
               Query(f"sum by (class) (rate(barograph_job_interval_seconds_sum{{{JOB}}}{RATE})) {SITE}",
                     "Share of its time", unit="percentunit"),
               Query(f"({_interval(JOB, 'class')}) {SITE}", "Interval", unit="s"),
               Query(f"({expected} and on (class) barograph_job_interval_seconds_sum{{{JOB}}}) {SITE}",
                     "Expected", unit="s"),
               Query(f"({over}) {SITE}", "Over expected", properties={"decimals": 2}),
               "class"],
              sort_by="Share of its time", empty=NEVER,
              widths={"Share of its time": 150, "Interval": 120, "Expected": 120, "Over expected": 130, "Class": 170}),
    ]  # fmt: skip


def _end() -> AnyPanel:
    least, usual, most = (f"max({RUNTIME % probability})" for probability in ("0.025", "0.5", "0.975"))
    return series(
        "Runtime", "How long the job has run and, at its pace so far, will have run in the end, over what its workload "
        "takes.",
        [*band(least, usual, most, "95 % of runs"),
         Query(PROJECTED, "projected", BLUE, properties=THICK),
         Query(f"time() - max(barograph_job_start_timestamp_seconds{{{JOB}}})", "so far", SKY)],
        unit="s", minimum=0, span=24, empty="Not known",
    )  # fmt: skip
