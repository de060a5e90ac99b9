"""What views ask the log, in SQL. Whatever came from a request, a command line or the log goes through `text`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barograph.views.log import Row
from barograph.views.states import ALARMS

OPEN_DAYS: Final = 30
"""A job that began before that and has no end in the log is considered lost."""
PAST_DAYS: Final = 30
"""How far back alarms are shown."""
SILENT_SECONDS: Final = 900.0
"""A job without blocks for this long is silent, as the alerts daemon has it."""
MOST_ALARMS: Final = 500
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


ALARMED: Final = f"state IN ({', '.join(map(text, ALARMS))})"


def newest(*key: str) -> str:
    """The clause that keeps of the rows with the same key the one that was written last."""
    return f'QUALIFY row_number() OVER (PARTITION BY {", ".join(key)} ORDER BY "offset" DESC) = 1'


def open_jobs(now: float) -> str:
    """Jobs without an end, each with its latest score."""
    return f"""
WITH open AS (
    SELECT * FROM jobs ANTI JOIN runs USING (job)
    WHERE cluster <> 'canary' AND started_at > {now - OPEN_DAYS * _DAY:.0f}
),
verdict AS (SELECT * EXCLUDE (workload) FROM scores SEMI JOIN open USING (job) {newest("job")})
SELECT o.job, o.workload, o.cluster, o.app, o.user, o.ranks, o.nodes, o.started_at,
    v.state, v.score, v.slowdown, v.onset_at, v.sentence
FROM open o LEFT JOIN verdict v USING (job) ORDER BY o.started_at DESC"""


def reporting(now: float) -> str:
    """Jobs that are not silent."""
    return f"SELECT DISTINCT job FROM blocks WHERE ended_at > {now - SILENT_SECONDS:.0f}"


def sparks(jobs: Iterable[str], now: float) -> str:
    """Mean interval of each job's main class, over its latest minutes in SPARKS steps."""
    names = ", ".join(text(job) for job in jobs) or "''"
    return f"""
WITH recent AS (
    SELECT job, class_id, ended_at AS t, sum_seconds AS s, "count" AS n
    FROM blocks WHERE ended_at > {now - SILENT_SECONDS:.0f} AND job IN ({names})
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
    """One job: its description, its latest score, its end, the last prediction of its runtime."""

    def latest(table: str) -> str:
        return f'(SELECT * FROM {table} WHERE job = {text(name)} ORDER BY "offset" DESC LIMIT 1)'

    return f"""
SELECT j.job, j.workload, j.cluster, j.app, j.user, j.params, j.ranks, j.nodes, j.host, j.started_at,
    s.state, s.score, s.slowdown, s.onset_at, s.alarmed_at, s.recovered_at, s.cause, s.members, s.sentence, s.basis,
    r.ended_at, r.runtime_seconds, r.exit_status, r.intervals, r.dropped,
    p.lower_seconds, p.expected_seconds, p.upper_seconds, p.runs
FROM {latest("jobs")} j LEFT JOIN {latest("scores")} s ON true LEFT JOIN {latest("runs")} r ON true
    LEFT JOIN {latest("predictions")} p ON true"""


def during(job_row: Row) -> str:
    """The condition for rows with `ended_at` of a job: with the time it ran in, most of a long log is not looked at."""
    ended_at = job_row["ended_at"]
    until = "" if ended_at is None else f" AND ended_at <= {ended_at + SLACK_SECONDS:.0f}"
    return f"job = {text(job_row['job'])} AND ended_at >= {job_row['started_at'] - SLACK_SECONDS:.0f}{until}"


def classes(blocks: str, most: int, least_share: float = 0.0) -> str:
    """The classes in which time is spent, the largest first, with their sites.

    blocks: the condition for the rows that count, as `during` makes it. most, least_share: classes beyond are left out.
    """
    visible = f"QUALIFY share >= {least_share}" if least_share else ""
    return f"""
WITH mine AS (
    SELECT class_id, count(*) AS "rows", sum("count")::BIGINT AS intervals, sum(sum_seconds) AS seconds,
        max(ended_at) AS reported_at, sum(sum_seconds) / sum(sum(sum_seconds)) OVER () AS share
    FROM blocks WHERE {blocks} GROUP BY class_id {visible} ORDER BY seconds DESC LIMIT {most}
),
place AS (SELECT * FROM sites SEMI JOIN mine USING (class_id) {newest("class_id")})
SELECT class_id::VARCHAR AS class_id, "rows", intervals, seconds, reported_at, share, "before", "at", operation
FROM mine LEFT JOIN place USING (class_id) ORDER BY seconds DESC"""


def trace(of_job: str, class_id: int, lower: float, upper: float) -> str:
    """Least, mean and longest interval of a class of a job, over its life in at most POINTS steps.

    of_job: from `during`. `single` counts the intervals that the log has one by one, `outside` those of them beyond
    lower or upper (seconds).
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


def thinned(of_job: str, class_id: int, step: int) -> str:
    """Of each `step` consecutive blocks of a class of a job the first and the slowest: when it ended, its mean."""
    return f"""
WITH numbered AS (
    SELECT ended_at, sum_seconds / "count" AS seconds, row_number() OVER (ORDER BY world, first_index) - 1 AS number
    FROM blocks WHERE {of_job} AND class_id = {class_id:d}
)
SELECT ended_at, seconds FROM numbered
QUALIFY number % {step} = 0 OR seconds = max(seconds) OVER (PARTITION BY number // {step}) ORDER BY ended_at"""


def band(workload: str, class_id: int, before: float | None) -> str:
    """The band of a class as it was last fitted, before a time (Unix seconds): a job has itself made those after it."""
    until = "" if before is None else f"AND fitted_at < {before:.3f}"
    return f"""
SELECT method, samples, runs, lower_seconds, expected_seconds, upper_seconds FROM bands
WHERE workload = {text(workload)} AND class_id = {class_id:d} AND kind = 'interval' AND method <> 'gev' {until}
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


def waited_for(of_job: str) -> str:
    """Per node of a job: own work, waiting, and the share of stretches in which the others waited for it."""
    return f"""
WITH mine AS (SELECT * FROM node_blocks WHERE {of_job} AND "count" > 0),
held AS (
    SELECT arg_min(host, least_wait_seconds / "count") AS host FROM mine
    GROUP BY world, first_index, length HAVING count(*) > 1
)
SELECT host, max(ranks) AS ranks, sum(own_seconds) / sum("count" * ranks) AS own_seconds,
    sum(p2p_seconds + wait_seconds) / sum("count" * ranks) AS waited_seconds,
    (SELECT count(*) FROM held WHERE held.host = mine.host) / greatest(1, (SELECT count(*) FROM held)) AS held_share
FROM mine GROUP BY host ORDER BY held_share DESC, host"""


def alarms(now: float) -> str:
    """Disturbances of jobs, the newest first, each as it was last written."""
    return f"""
WITH said AS (
    SELECT * FROM scores WHERE {ALARMED} AND "at" > {now - PAST_DAYS * _DAY:.0f} {newest("job", "alarmed_at")}
)
SELECT s.job, j.app, j.user, j.ranks, j.nodes, s.state, s.score, s.slowdown, s.onset_at, s.alarmed_at,
    s.recovered_at, s.cause, s.sentence, r.ended_at
FROM said s JOIN jobs j USING (job) LEFT JOIN runs r USING (job)
WHERE j.cluster <> 'canary' ORDER BY s.alarmed_at DESC LIMIT {MOST_ALARMS}"""


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


def ended_runs(app: str, cluster: str | None, since: float) -> str:
    """The runs of an application that ended since then (Unix seconds), with any parameters and any result."""
    where = f"app = {text(app)}" + (f" AND cluster = {text(cluster)}" if cluster else "")
    return f"""
SELECT jobs.job, cluster, workload, params, ranks, nodes, ended_at, runtime_seconds, exit_status,
    job IN (SELECT job FROM scores WHERE {ALARMED}) AS alarmed
FROM jobs JOIN runs USING (job) WHERE {where} AND {_ended(since)} AND ranks > 0 ORDER BY ended_at"""


class Where(NamedTuple):
    """Runs of one problem that ended since a time, in Unix seconds. params: as the log has them."""

    app: str
    cluster: str
    params: str
    since: float

    @property
    def subject(self) -> str:
        """The condition for rows of `jobs`."""
        return f"app = {text(self.app)} AND cluster = {text(self.cluster)} AND params = {text(self.params)}"

    @property
    def jobs(self) -> str:
        """A SELECT of their names."""
        return f"SELECT job FROM jobs JOIN runs USING (job) WHERE {self.subject} AND {_ended(self.since)}"

    @property
    def healthy(self) -> str:
        """The same for those that ended well and never alarmed."""
        return f"{self.jobs} AND exit_status = 0 AND job NOT IN (SELECT job FROM scores WHERE {ALARMED})"

    def bands(self) -> str:
        """The newest band of each class and method."""
        return f"""
SELECT * FROM bands WHERE workload IN (SELECT workload FROM jobs WHERE {self.subject})
{newest("workload", "class_id", "method")}"""

    def forecasts(self) -> str:
        """Predictions that were made while the jobs ran, with what came of them, in the order of their making."""
        return f"""
SELECT predictions.*, actual_seconds, result, outcomes.relative_error
FROM predictions JOIN outcomes USING (job) WHERE job IN ({self.jobs}) ORDER BY made_at, job"""

    def alarms(self) -> str:
        """The newest row of each job that has alarmed, the newest alarm first."""
        return f"""
SELECT * FROM scores WHERE job IN ({self.jobs}) AND {ALARMED} {newest("job")} ORDER BY alarmed_at DESC"""

    def intervals(self, class_ids: Iterable[int], about: int) -> str:
        """About so many single intervals of each class and workload of the healthy runs."""
        singles = f"""FROM blocks JOIN jobs USING (job)
    WHERE "count" = 1 AND class_id IN ({_numbers(class_ids)}) AND job IN ({self.healthy})"""
        # The hash decides which are drawn, so that the same log gives the same picture.
        return f"""
WITH sizes AS (SELECT workload, class_id, count(*) AS size {singles} GROUP BY ALL),
singles AS (SELECT workload, class_id, sum_seconds, hash(job, world, first_index) AS drawn {singles})
SELECT workload, class_id, sum_seconds FROM singles JOIN sizes USING (workload, class_id)
WHERE drawn % ceil(size / {about})::UBIGINT = 0"""

    def shapes(self, class_ids: Iterable[int]) -> str:
        """The shapes that the modeler has fitted to classes of the healthy runs, in the order of time."""
        return f"""
SELECT class_id, workload, fitted_at, shape FROM bands
WHERE kind = 'interval' AND isfinite(shape) AND class_id IN ({_numbers(class_ids)})
    AND workload IN (SELECT workload FROM jobs WHERE job IN ({self.healthy})) ORDER BY fitted_at"""


def _ended(since: float) -> str:
    return f"ended_at >= {since!r} AND runtime_seconds > 0 AND isfinite(runtime_seconds)"


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(f"{value:d}" for value in values)


def _of(user: str | None) -> str:
    return "" if user is None else f"AND j.user = {text(user)}"
