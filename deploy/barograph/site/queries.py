"""What the page asks the log, in SQL. Everything that came from a request goes through `text`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barograph.site.log import Row

OPEN_DAYS: Final = 30
"""A job that began before that and has no end in the log is taken for lost."""
PAST_DAYS: Final = 30
"""How far back alarms are shown."""
HEARD_SECONDS: Final = 900.0
"""A job that has said nothing for this long is silent, as the alerts daemon has it."""
ALARMS: Final = 500
POINTS: Final = 320
SPARKS: Final = 32
SLACK_SECONDS: Final = 3600.0
"""How far clocks of nodes may be apart."""
_DAY: Final = 86400


def text(value: str) -> str:
    """A string as a literal of SQL.

    >>> text("o'clock")
    "'o''clock'"
    """
    return "'" + value.replace("'", "''") + "'"


def open_jobs(now: float) -> str:
    """Jobs without an end, each with its latest score."""
    return f"""
WITH open AS (
    SELECT * FROM jobs ANTI JOIN runs USING (job)
    WHERE cluster <> 'canary' AND started_at > {now - OPEN_DAYS * _DAY:.0f}
),
verdict AS (
    SELECT * EXCLUDE (workload) FROM scores SEMI JOIN open USING (job)
    QUALIFY row_number() OVER (PARTITION BY job ORDER BY "offset" DESC) = 1
)
SELECT o.job, o.workload, o.cluster, o.app, o.user, o.ranks, o.nodes, o.started_at,
    v.state, v.score, v.slowdown, v.onset_at, v.sentence
FROM open o LEFT JOIN verdict v USING (job) ORDER BY o.started_at DESC"""


def heard(now: float) -> str:
    """Jobs that have said something of late."""
    return f"SELECT DISTINCT job FROM blocks WHERE ended_at > {now - HEARD_SECONDS:.0f}"


def sparks(jobs: Iterable[str], now: float) -> str:
    """Mean interval of each job's main class, over its latest minutes in SPARKS steps."""
    names = ", ".join(text(job) for job in jobs) or "''"
    return f"""
WITH recent AS (
    SELECT job, class_id, ended_at AS t, sum_seconds AS s, "count" AS n
    FROM blocks WHERE ended_at > {now - HEARD_SECONDS:.0f} AND job IN ({names})
),
main AS (
    SELECT job, arg_max(class_id, total) AS class_id
    FROM (SELECT job, class_id, sum(s) AS total FROM recent GROUP BY job, class_id) GROUP BY job
),
mine AS (
    SELECT job, t, s, n, min(t) OVER whole AS first, max(t) OVER whole AS last
    FROM recent JOIN main USING (job, class_id) WINDOW whole AS (PARTITION BY job)
)
SELECT job, least(floor({SPARKS} * (t - first) / nullif(last - first, 0)), {SPARKS - 1})::INT AS step,
    sum(s) / sum(n) AS seconds
FROM mine GROUP BY job, step ORDER BY job, step"""


def job(name: str) -> str:
    """One job: who it is, its latest score, its end, the last prediction of its runtime."""

    def latest(table: str) -> str:
        return f'(SELECT * FROM {table} WHERE job = {text(name)} ORDER BY "offset" DESC LIMIT 1)'

    return f"""
SELECT j.job, j.workload, j.cluster, j.app, j.user, j.params, j.ranks, j.nodes, j.host, j.started_at,
    s.state, s.score, s.slowdown, s.onset_at, s.alarmed_at, s.recovered_at, s.cause, s.members, s.sentence, s.basis,
    r.ended_at, r.runtime_seconds, r.exit_status, r.dropped,
    p.lower_seconds, p.expected_seconds, p.upper_seconds, p.runs
FROM {latest("jobs")} j LEFT JOIN {latest("scores")} s ON true LEFT JOIN {latest("runs")} r ON true
    LEFT JOIN {latest("predictions")} p ON true"""


def during(job_row: Row) -> str:
    """The condition for rows with `ended_at` of a job: with the time it ran in, most of a long log is not looked at."""
    ended_at = job_row["ended_at"]
    until = "" if ended_at is None else f" AND ended_at <= {ended_at + SLACK_SECONDS:.0f}"
    return f"job = {text(job_row['job'])} AND ended_at >= {job_row['started_at'] - SLACK_SECONDS:.0f}{until}"


def classes(of_job: str) -> str:
    """Where a job spends its time: its classes, the longest first. of_job: from `during`, as below."""
    return f"""
WITH mine AS (
    SELECT class_id, sum("count")::BIGINT AS intervals, sum(sum_seconds) AS seconds, max(ended_at) AS heard_at
    FROM blocks WHERE {of_job} GROUP BY class_id ORDER BY seconds DESC LIMIT 8
),
place AS (
    SELECT * FROM sites SEMI JOIN mine USING (class_id)
    QUALIFY row_number() OVER (PARTITION BY class_id ORDER BY "offset" DESC) = 1
)
SELECT class_id::VARCHAR AS class_id, intervals, seconds, heard_at, "before", "at", operation
FROM mine LEFT JOIN place USING (class_id) ORDER BY seconds DESC"""


def trace(of_job: str, class_id: int, lower: float, upper: float) -> str:
    """Least, mean and longest interval of a class of a job, over its life in at most POINTS steps.

    `single` counts the intervals that the log has one by one, `outside` those of them beyond lower or upper (seconds).
    """
    return f"""
WITH mine AS (
    SELECT ended_at AS t, "count" AS n, sum_seconds AS s, min_seconds AS least, max_seconds AS longest,
        min(t) OVER () AS first, max(t) OVER () AS last
    FROM blocks WHERE {of_job} AND class_id = {class_id:d}
)
SELECT max(t) AS "at", sum(n)::BIGINT AS intervals, min(least) AS least, sum(s) / sum(n) AS mean,
    max(longest) AS longest, count(*) FILTER (n = 1) AS single,
    count(*) FILTER (n = 1 AND (s < {lower!r} OR s > {upper!r})) AS outside
FROM mine GROUP BY least(floor({POINTS} * (t - first) / nullif(last - first, 0)), {POINTS - 1}) ORDER BY 1"""


def band(workload: str, class_id: int, before: float) -> str:
    """The band of a class as it was last fitted; `before` (Unix seconds) leaves out those a job has itself made."""
    return f"""
SELECT method, samples, runs, lower_seconds, expected_seconds, upper_seconds FROM bands
WHERE workload = {text(workload)} AND class_id = {class_id:d} AND kind = 'interval' AND method <> 'gev'
    AND fitted_at < {before:.3f}
ORDER BY "offset" DESC LIMIT 1"""


def arrivals(of_job: str, onset_at: float) -> str:
    """Per node of a job, before and since an onset: own work and waiting per rank and sync point."""
    return f"""
SELECT host, ended_at > {onset_at:.3f} AS since, sum("count")::BIGINT AS syncs, max(ranks) AS ranks,
    sum(own_seconds) / sum("count" * ranks)::DOUBLE AS own, sum(wait_seconds) / sum("count" * ranks) AS wait,
    sum(least_wait_seconds) / sum("count") AS least_wait
FROM node_blocks WHERE {of_job} AND "count" > 0 GROUP BY host, since ORDER BY host, since"""


def latecomers(of_job: str, onset_at: float) -> str:
    """Ranks within their node that came last most often, since an onset, with how late they were on average."""
    return f"""
WITH mine AS (
    SELECT *, sum("count") OVER (PARTITION BY host)::DOUBLE AS syncs FROM node_blocks
    WHERE {of_job} AND ranks > 1 AND ended_at > {onset_at:.3f}
)
SELECT host, last_rank AS rank, sum(last_count)::DOUBLE / any_value(syncs) AS share,
    sum(late_seconds) / nullif(sum(last_count), 0) AS late
FROM mine GROUP BY host, last_rank ORDER BY share * late DESC LIMIT 8"""


def alarms(now: float) -> str:
    """Disturbances of jobs, the newest first, each as it was last written."""
    return f"""
WITH said AS (
    SELECT * FROM scores WHERE state IN ('slow', 'stalled', 'fast') AND "at" > {now - PAST_DAYS * _DAY:.0f}
    QUALIFY row_number() OVER (PARTITION BY job, alarmed_at ORDER BY "offset" DESC) = 1
)
SELECT s.job, j.app, j.user, j.ranks, j.nodes, s.state, s.score, s.slowdown, s.onset_at, s.alarmed_at,
    s.recovered_at, s.cause, s.sentence, r.ended_at
FROM said s JOIN jobs j USING (job) LEFT JOIN runs r USING (job)
WHERE j.cluster <> 'canary' ORDER BY s.alarmed_at DESC LIMIT {ALARMS}"""


def applications(user: str | None) -> str:
    """Applications with finished runs, the latest first; `user` keeps those that this user has run."""
    return f"""
SELECT j.cluster, j.app, count(*) AS runs, count(DISTINCT j.ranks) AS scales, min(j.ranks) AS least,
    max(j.ranks) AS most, max(r.ended_at) AS ended_at, median(r.runtime_seconds) AS seconds
FROM jobs j JOIN runs r USING (job)
WHERE r.exit_status = 0 AND j.cluster <> 'canary' {_of(user)}
GROUP BY j.cluster, j.app ORDER BY ended_at DESC LIMIT 500"""


def problems(cluster: str, app: str, user: str | None) -> str:
    """Sets of parameters that an application has run with, the most often run first."""
    return f"""
SELECT j.params, count(*) AS runs, max(j.ranks) AS most FROM jobs j JOIN runs r USING (job)
WHERE j.cluster = {text(cluster)} AND j.app = {text(app)} AND r.exit_status = 0 {_of(user)}
GROUP BY j.params ORDER BY runs DESC, most DESC LIMIT 40"""


def scales(cluster: str, app: str, params: str, user: str | None) -> str:
    """How the runtimes of one problem spread, by scale."""
    return f"""
SELECT j.ranks, j.nodes, count(*) AS runs, quantile_cont(r.runtime_seconds, 0.05) AS low,
    median(r.runtime_seconds) AS middle, quantile_cont(r.runtime_seconds, 0.95) AS high
FROM jobs j JOIN runs r USING (job)
WHERE j.cluster = {text(cluster)} AND j.app = {text(app)} AND j.params = {text(params)}
    AND r.exit_status = 0 {_of(user)}
GROUP BY j.ranks, j.nodes ORDER BY j.ranks, j.nodes LIMIT 200"""


def outcomes(cluster: str, app: str, user: str | None) -> str:
    """What became of predictions for an application, the newest first."""
    return f"""
SELECT o.job, o.result, o.expected_seconds, o.actual_seconds, o.relative_error, o."at", j.ranks
FROM outcomes o JOIN jobs j USING (job)
WHERE o.application = {text(f"{cluster}/{app}")} {_of(user)} ORDER BY o."offset" DESC LIMIT 200"""


def events() -> str:
    """The newest entries of the pipeline's diary."""
    return 'SELECT source, kind, "rows", detail, "at" FROM events ORDER BY "offset" DESC LIMIT 40'


def _of(user: str | None) -> str:
    return "" if user is None else f"AND j.user = {text(user)}"
