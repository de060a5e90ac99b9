"""The operator's dashboard: all jobs, what alarms now, which nodes hold jobs up, and how Barograph itself is."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from barograph_dashboards.board import board
from barograph_dashboards.palette import BLUE, GREY, ORANGE, PINK, RED, SKY, STATES
from barograph_dashboards.panels import BARS, AnyPanel, Query, series, stat, table

UID: Final = "barograph-facility"
REAL: Final = 'job!~"canary/.*"'
"""Without the canary."""
INTERVALS_STORED: Final = "sum(rate(barograph_agent_intervals_stored_total[$__rate_interval]))"
JOB_LINK: Final = "/d/barograph-job?var-job=${__value.raw:percentencode}"


def facility() -> Dashboard:
    """All jobs, alarms, nodes, and the pipeline."""
    return board(
        UID,
        "Barograph / Facility",
        "Jobs that run, alarms with their sentence, nodes that hold up jobs, and how Barograph itself is.",
        since="now-6h",
        refresh="30s",
        rows={"": _now(), "Jobs": _jobs(), "Nodes": _nodes(), "Barograph itself": _pipeline()},
    )


def _now() -> list[AnyPanel]:
    running = "sum(barograph_alerts_running_jobs)"
    alive = "count(time() - max by (daemon) (barograph_heartbeat_timestamp_seconds) <= 60) or vector(0)"
    return [
        stat("Running jobs", "Jobs that are watched now.", running, unit="locale"),
        stat("Disturbed jobs", "Jobs whose score is above 1; those that ended so stay for 3 minutes.",
             f"count(count by (job) (barograph_job_alarm_info{{{REAL}}})) or 0 * {running}", bad_from=1,
             unit="locale"),
        stat("Slow at once", "Share of running jobs that are slow, while it is half or more. Then the cause is "
             "likely one: network, file system, power.", "max(barograph_facility_slow_ratio)", unit="percentunit",
             bad_from=0.5),
        stat("Slow nodes", "Nodes that were the straggler in job after job.",
             f"count(barograph_node_straggler_score > 1) or 0 * {running}", bad_from=1),
        stat("Intervals", "Intervals that are stored every second.", INTERVALS_STORED, unit="cps"),
        stat("Missing daemons", "Of collector, modeler and alerts, those that Prometheus does not reach or that have "
             "not gone through their main loop for a minute. Without alerts nothing here alarms.",
             f"3 - ({alive})", bad_from=1),
    ]  # fmt: skip


def _jobs() -> list[AnyPanel]:
    disturbed = "and on (job) barograph_job_alarm_info"
    states = [Query(f'sum(barograph_alerts_running_jobs{{state="{state}"}})', state, color)
              for state, color in STATES.items()]  # fmt: skip
    ended = [Query(f'sum(increase(barograph_alerts_jobs_total{{state="{state}"}}[5m]))', state, color, step="5m",
                   properties=BARS) for state, color in STATES.items()]  # fmt: skip
    return [
        table("Alarms now", "Jobs that are disturbed, the strongest evidence first. A job's name leads to its own "
              "dashboard.",
              ["job", "user", "state",
               Query(f"max by (job, user, state, cause, members, sentence) (barograph_job_alarm_info{{{REAL}}}) "
                     "* on (job) group_left () barograph_job_score", "Score", properties={"decimals": 1}),
               Query(f"max by (job) (barograph_job_slowdown_ratio{{{REAL}}} {disturbed})", "Slowdown",
                     properties={"decimals": 2}),
               Query(f"max by (job) (1000 * (barograph_job_onset_timestamp_seconds{{{REAL}}} {disturbed}))", "Since",
                     unit="dateTimeFromNow"),
               "cause", "members", "sentence"],
              sort_by="Score", empty="No job is known to be disturbed", links={"job": JOB_LINK},
              widths={"Job": 180, "User": 90, "State": 80, "Score": 70, "Slowdown": 90, "Since": 130, "Cause": 100,
                      "Members": 160}),
        series("Running jobs by state", "All running jobs. Unknown: too little is known to judge them.", states,
               minimum=0, stacked=True),
        series("Ended jobs by final state", "Jobs that ended in five minutes, by their last verdict.", ended,
               minimum=0, stacked=True),
    ]  # fmt: skip


def _nodes() -> list[AnyPanel]:
    worst = "topk(20, barograph_node_straggler_score)"
    jobs = f'max by (node) (barograph_node_straggler_jobs{{part="%s"}} and on (node) {worst})'
    none = "No job on several nodes has had a straggler"
    return [
        table("Nodes that hold up jobs", "Nodes by the evidence that they are the straggler of the jobs they take part "
              "in. Above 1: drain and test.",
              ["node",
               Query(f"max by (node) ({worst})", "Score", properties={"decimals": 2}),
               Query(jobs % "blamed", "Blamed"),
               Query(jobs % "all", "Of jobs")],
              span=12, sort_by="Score", empty=none),
        series("Evidence against nodes", "The five nodes with the most evidence at each moment. Above 1 alarms.",
               [Query("topk(5, max by (node) (barograph_node_straggler_score))", "{{node}}")], line_at=1, minimum=0,
               empty=none),
    ]  # fmt: skip


def _pipeline() -> list[AnyPanel]:
    refusals = "topk(3, sum by (reason) (rate(barograph_%s_total[$__rate_interval])))"
    return [
        series("Heartbeats", "Time since each daemon last went through its main loop. Above a minute alarms.",
               [Query("time() - max by (daemon) (barograph_heartbeat_timestamp_seconds)", "{{daemon}}")], unit="s",
               line_at=60, minimum=0, span=8),
        series("Stored", "Intervals and rows of all kinds committed to the log.",
               [Query(INTERVALS_STORED, "intervals", BLUE),
                Query("sum(rate(barograph_collector_rows_total[$__rate_interval]))", "rows", ORANGE)],
               unit="cps", minimum=0, span=8),
        series("Lag", "How long acknowledged rows have waited for the database, and how long a commit takes.",
               [Query("max(barograph_collector_lag_seconds)", "oldest row waits", BLUE),
                Query("sum(rate(barograph_collector_commit_seconds_sum[$__rate_interval])) / "
                      "sum(rate(barograph_collector_commit_seconds_count[$__rate_interval]))", "commit", ORANGE)],
               unit="s", minimum=0, span=8),
        series("Given up or refused", "Rows that agents gave up, and messages that the collector did not take: of both "
               "the three most frequent reasons. Should be nothing.",
               [Query(refusals % "agent_rows_dropped", "given up: {{reason}}"),
                Query(refusals % "collector_rejected", "refused: {{reason}}")],
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
    ]  # fmt: skip
