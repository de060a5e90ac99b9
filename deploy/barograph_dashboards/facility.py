"""The operator's dashboard: all jobs, what alarms now, which nodes hold jobs up, and how Barograph itself is."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from barograph_dashboards.board import board
from barograph_dashboards.palette import BLUE, GREY, ORANGE, PINK, RED, SKY, STATES
from barograph_dashboards.panels import BARS, Query, series, stat, table

UID: Final = "barograph-facility"
REAL: Final = 'job!~"canary/.*"'
"""The canary is no job of anybody's."""
JOB_LINK: Final = "/d/barograph-job?var-job=${__value.raw:percentencode}"


def facility() -> Dashboard:
    """All jobs, alarms, nodes, and the pipeline."""
    made = board(
        UID,
        "Barograph / Facility",
        "Jobs that run, alarms with their sentence, nodes that hold up jobs, and how Barograph itself is.",
        since="now-6h",
        refresh="30s",
    )
    _now(made)
    _jobs(made.with_row(Row("Jobs")))
    _nodes(made.with_row(Row("Nodes")))
    _pipeline(made.with_row(Row("Barograph itself")))
    return made


def _now(made: Dashboard) -> None:
    running = "sum(barograph_alerts_running_jobs)"
    alive = "count(time() - max by (daemon) (barograph_heartbeat_timestamp_seconds) <= 60) or vector(0)"
    for panel in (
        stat("Running jobs", "Jobs that are watched now.", running, unit="locale"),
        stat("Disturbed jobs", "Jobs whose score is above 1; those that ended so stay for 3 minutes.",
             f"count(count by (job) (barograph_job_alarm_info{{{REAL}}})) or 0 * {running}", bad_from=1,
             unit="locale"),
        stat("Slow at once", "Share of running jobs that are slow, while it is half or more. Then the cause is "
             "likely one: network, file system, power.", "max(barograph_facility_slow_ratio)", unit="percentunit",
             bad_from=0.5),
        stat("Slow nodes", "Nodes that were the straggler in job after job.",
             f"count(barograph_node_straggler_score > 1) or 0 * {running}", bad_from=1),
        stat("Intervals", "Intervals that are stored every second.",
             "sum(rate(barograph_agent_intervals_stored_total[$__rate_interval]))", unit="cps"),
        stat("Missing daemons", "Of collector, modeler and alerts, those that Prometheus does not reach or that have "
             "not gone through their main loop for a minute. Without alerts nothing here alarms.",
             f"3 - ({alive})", bad_from=1),
    ):  # fmt: skip
        made.with_panel(panel)


def _jobs(made: Dashboard) -> None:
    made.with_panel(
        table(
            "Alarms now",
            "Jobs that are disturbed, the strongest evidence first. A job's name leads to its own dashboard.",
            [
                "job", "user", "state",
                Query(f"max by (job, user, state, cause, members, sentence) (barograph_job_alarm_info{{{REAL}}}) "
                      "* on (job) group_left () barograph_job_score", "Score", properties={"decimals": 1}),
                Query(f"max by (job) (barograph_job_slowdown_ratio{{{REAL}}} "
                      "and on (job) barograph_job_alarm_info)", "Slowdown", properties={"decimals": 2}),
                Query(f"max by (job) (1000 * (barograph_job_onset_timestamp_seconds{{{REAL}}} "
                      "and on (job) barograph_job_alarm_info))", "Since", unit="dateTimeFromNow"),
                "cause", "members", "sentence",
            ],
            sort_by="Score",
            empty="No job is known to be disturbed",
            links={"job": JOB_LINK},
            widths={"Job": 180, "User": 90, "State": 80, "Score": 70, "Slowdown": 90, "Since": 130, "Cause": 100,
                    "Members": 160},
        )
    )  # fmt: skip
    states = [
        Query(f'sum(barograph_alerts_running_jobs{{state="{state}"}})', state, color) for state, color in STATES.items()
    ]
    made.with_panel(
        series("Running jobs by state", "All running jobs. Unknown: too little is known to judge them.", states,
               minimum=0, stacked=True, fill=60)
    )  # fmt: skip
    ended = [
        Query(f'sum(increase(barograph_alerts_jobs_total{{state="{state}"}}[5m]))', state, color, step="5m",
              properties=BARS)
        for state, color in STATES.items()
    ]  # fmt: skip
    made.with_panel(
        series("Ended jobs by final state", "Jobs that ended in five minutes, by their last verdict.",
               ended, minimum=0, stacked=True, fill=60)
    )  # fmt: skip


def _nodes(made: Dashboard) -> None:
    worst = "topk(20, barograph_node_straggler_score)"
    made.with_panel(
        table(
            "Nodes that hold up jobs",
            "Nodes by the evidence that they are the straggler of the jobs they take part in. Above 1: drain and test.",
            [
                "node",
                Query(f"max by (node) ({worst})", "Score", properties={"decimals": 2}),
                Query(f'max by (node) (barograph_node_straggler_jobs{{part="blamed"}} and on (node) {worst})',
                      "Blamed"),
                Query(f'max by (node) (barograph_node_straggler_jobs{{part="all"}} and on (node) {worst})',
                      "Of jobs"),
            ],
            span=12, sort_by="Score", empty="No job on several nodes has had a straggler",
        )
    )  # fmt: skip
    made.with_panel(
        series("Evidence against nodes", "The five nodes with the most evidence at each moment. Above 1 alarms.",
               [Query("topk(5, max by (node) (barograph_node_straggler_score))", "{{node}}")], line_at=1, minimum=0,
               empty="No job on several nodes has had a straggler")
    )  # fmt: skip


def _pipeline(made: Dashboard) -> None:
    for panel in (
        series("Heartbeats", "Time since each daemon last went through its main loop. Above a minute alarms.",
               [Query("time() - max by (daemon) (barograph_heartbeat_timestamp_seconds)", "{{daemon}}")], unit="s",
               line_at=60, minimum=0, span=8),
        series("Stored", "Intervals and rows of all kinds committed to the log.",
               [Query("sum(rate(barograph_agent_intervals_stored_total[$__rate_interval]))", "intervals", BLUE),
                Query("sum(rate(barograph_collector_rows_total[$__rate_interval]))", "rows", ORANGE)],
               unit="cps", minimum=0, span=8),
        series("Lag", "How long acknowledged rows have waited for the database, and how long a commit takes.",
               [Query("max(barograph_collector_lag_seconds)", "oldest row waits", BLUE),
                Query("sum(rate(barograph_collector_commit_seconds_sum[$__rate_interval])) / "
                      "sum(rate(barograph_collector_commit_seconds_count[$__rate_interval]))", "commit", ORANGE)],
               unit="s", minimum=0, span=8),
        series("Given up or refused", "Rows that agents gave up, and messages that the collector did not take: of both "
               "the three most frequent reasons. Should be nothing.",
               [Query("topk(3, sum by (reason) (rate(barograph_agent_rows_dropped_total[$__rate_interval])))",
                      "given up: {{reason}}"),
                Query("topk(3, sum by (reason) (rate(barograph_collector_rejected_total[$__rate_interval])))",
                      "refused: {{reason}}")],
               unit="cps", minimum=0, span=8, empty="Nothing was given up or refused"),
        series("Disk", "Room left for the log, on the right axis, and what it takes.",
               [Query("min(barograph_collector_disk_free_bytes)", "free", BLUE,
                      properties={"custom.axisPlacement": "right"}),
                Query("max(barograph_collector_database_bytes)", "database", ORANGE),
                Query("max(barograph_collector_journal_bytes)", "journal", SKY)], unit="bytes", minimum=0, span=8),
        series("Waiting and hidden", "Work that waits in the modeler, and series that limits leave out.",
               [Query("max(barograph_modeler_refit_backlog)", "classes to fit", BLUE),
                Query("max(barograph_modeler_fit_backlog)", "applications to fit", ORANGE),
                Query("max(barograph_alerts_jobs_hidden)", "jobs hidden", RED),
                Query("max(barograph_alerts_classes_hidden)", "classes of jobs hidden", PINK),
                Query("max(barograph_modeler_classes_hidden)", "bands hidden", GREY)], minimum=0, span=8),
    ):  # fmt: skip
        made.with_panel(panel)
