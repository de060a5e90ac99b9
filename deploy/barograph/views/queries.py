"""SQL of the views. Every string from a request, a command line or the log is quoted by `literal`.

A joint query is for all collectors. Text is for that of a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barograph.views.collectors.joint_query import JointQuery, Order, fairly, grouped, joined, quantiles, sample
from barograph.views.log import Row
from barograph.views.states import ALARMS
from barograph.views.words import finite
from barograph_collector.storage.text import literal

OPEN_DAYS: Final = 30
"""Age in days from which on a job without an end in the log is considered lost."""
PAST_DAYS: Final = 30
"""Age in days up to which alarms are shown."""
SILENT_SECONDS: Final = 900.0
"""A job without blocks for this long is silent, as in the alerts daemon."""
MAX_ALARMS: Final = 500
MAX_RUNNING: Final = 20_000
MAX_USER_RUNNING: Final = 2_000
"""Running jobs of a user that are listed: those with an alarm, and the newest."""
POINTS: Final = 320
SPARKS: Final = 32
SLACK_SECONDS: Final = 3600.0
"""Greatest difference between clocks of nodes."""
MAX_APPLICATIONS: Final = 500
MAX_PROBLEMS: Final = 40
MAX_SCALES: Final = 200
MAX_OUTCOMES: Final = 200
MAX_EVENTS: Final = 40
MAX_CLASSES: Final = 1_000
"""Classes of an application that count."""
MAX_NAMED: Final = 2_000
"""Jobs that a query names. More are selected by what they have in common, for which more of the log is read."""
_DAY: Final = 86400


ALARMED: Final = f"state IN ({', '.join(map(literal, ALARMS))})"


def newest(*key: str) -> str:
    """The clause that keeps the last written row of each key."""
    return f"QUALIFY row_number() OVER (PARTITION BY {', '.join(key)} ORDER BY log_offset DESC) = 1"


def newest_first(name: str) -> Order:
    """The order of a descending number; one that is not finite comes last."""
    return lambda row: -row[name] if finite(row[name]) else float("inf")


def has_job(job: str) -> str:
    """A row if the log has this job."""
    return f"SELECT 1 FROM jobs WHERE job = {literal(job)} LIMIT 1"


def grouped_jobs(condition: str) -> str:
    """Rows of `jobs` for which a condition holds, their `workload` replaced by the group of like work of each job."""
    return f"""(
    SELECT jobs.* REPLACE (coalesce(assigned.workload, jobs.workload) AS workload) FROM jobs
    LEFT JOIN (
        SELECT job, workload FROM assignments SEMI JOIN (FROM jobs WHERE {condition}) USING (job) {newest("job")}
    ) assigned USING (job) WHERE {condition})"""


def open_jobs(now: float) -> JointQuery:
    """Running jobs, each with its latest score: of each user the first ones, alarms before others, newest first.

    `of_user`: the number of running jobs of the user.
    """
    text = f"""
WITH open AS (
    SELECT * FROM jobs ANTI JOIN runs USING (job)
    WHERE cluster <> 'canary' AND started_at > {now - OPEN_DAYS * _DAY:.0f}
),
recent AS (SELECT * EXCLUDE (workload) FROM scores WHERE time > {now - OPEN_DAYS * _DAY:.0f}),
verdict AS (SELECT * FROM recent SEMI JOIN open USING (job) {newest("job")})
SELECT o.job, o.workload, o.cluster, o.app, o.user, o.ranks, o.started_at,
    v.state, v.score, v.slowdown, v.onset_at, v.sentence, count(*) OVER (PARTITION BY o.user) AS of_user,
    row_number() OVER (PARTITION BY o.user ORDER BY ({ALARMED}) IS TRUE DESC, o.started_at DESC) AS place
FROM open o LEFT JOIN verdict v USING (job)
QUALIFY place <= {MAX_USER_RUNNING} ORDER BY place LIMIT {MAX_RUNNING}"""
    begun = newest_first("started_at")
    return JointQuery(
        text,
        fairly(lambda row: (row["state"] not in ALARMS, begun(row)), MAX_USER_RUNNING, MAX_RUNNING, by_place=True),
    )


def reporting(now: float) -> JointQuery:
    """Names of the jobs that are not silent."""
    text = f"SELECT DISTINCT job FROM blocks WHERE ended_at > {now - SILENT_SECONDS:.0f}"
    return JointQuery(text, joined(lambda row: row["job"]))


def sparks(jobs: Iterable[str], now: float) -> JointQuery:
    """Mean interval of the main class of each job over the last SILENT_SECONDS, in SPARKS steps."""
    names = ", ".join(literal(job) for job in jobs) or "''"
    text = f"""
WITH recent AS (
    SELECT job, class_id, ended_at AS t, sum_seconds AS s, "count" AS n
    FROM blocks WHERE ended_at > {now - SILENT_SECONDS:.0f} AND job IN ({names})
),
main AS (
    SELECT job, arg_max(class_id, total) AS class_id
    FROM (SELECT job, class_id, sum(s) AS total FROM recent GROUP BY job, class_id) GROUP BY job
),
selected AS (
    SELECT job, t, s, n, min(t) OVER whole AS first, max(t) OVER whole AS last
    FROM recent JOIN main USING (job, class_id) WINDOW whole AS (PARTITION BY job)
)
SELECT job, least(floor({SPARKS} * (t - first) / nullif(last - first, 0)), {SPARKS - 1})::INT AS step,
    sum(s) / sum(n) AS seconds
FROM selected GROUP BY job, step ORDER BY job, step"""
    return JointQuery(text, joined(lambda row: (row["job"], row["step"] or 0)))


def job(name: str) -> str:
    """One job with its latest score, its end and the last prediction of its runtime."""

    def latest(table: str, order: str = "DESC") -> str:
        return f"(SELECT * FROM {table} WHERE job = {literal(name)} ORDER BY log_offset {order} LIMIT 1)"

    return f"""
SELECT j.job, coalesce(a.workload, s.workload, j.workload) AS workload, j.cluster, j.app, j.user, j.params, j.ranks,
    j.nodes, j.started_at, s.state, s.score, s.slowdown, s.onset_at, s.alarmed_at, s.recovered_at, s.members,
    s.sentence, r.ended_at, r.runtime_seconds, r.exit_status, r.intervals, r.dropped,
    p.lower_seconds, p.expected_seconds, p.upper_seconds, p.runs, p.model AS predicted_by, p.method
FROM {latest("jobs", "ASC")} j LEFT JOIN {latest("scores")} s ON true LEFT JOIN {latest("runs")} r ON true
    LEFT JOIN {latest("predictions")} p ON true LEFT JOIN {latest("assignments")} a ON true"""


def during(job_row: Row) -> str:
    """The condition for rows with `ended_at` of a job. Its bounds in time let DuckDB skip most of a long log."""
    ended_at = job_row["ended_at"]
    until = "" if ended_at is None else f" AND ended_at <= {ended_at + SLACK_SECONDS:.0f}"
    return f"job = {literal(job_row['job'])} AND ended_at >= {job_row['started_at'] - SLACK_SECONDS:.0f}{until}"


def classes(blocks: str, most: int) -> str:
    """Classes of intervals by descending total time, with their sites.

    blocks: the condition for blocks, as from `during`. most: limit of rows. `share`: of the total time, 0 to 1.
    """
    return f"""
WITH spent AS (
    SELECT class_id, count(*) AS "rows", sum("count")::BIGINT AS intervals, sum(sum_seconds) AS seconds,
        max(job) AS job, max(ended_at) AS reported_at, sum(sum_seconds) / sum(sum(sum_seconds)) OVER () AS share
    FROM blocks WHERE {blocks} GROUP BY class_id ORDER BY seconds DESC LIMIT {most}
),
place AS (SELECT * FROM sites SEMI JOIN spent USING (job, class_id) {newest("class_id")})
SELECT class_id::VARCHAR AS class_id, "rows", intervals, seconds, reported_at, share, from_site, to_site, operation
FROM spent LEFT JOIN place USING (job, class_id) ORDER BY seconds DESC"""


def trace(of_job: str, class_id: int, lower: float, upper: float) -> str:
    """Least, mean and longest interval of a class of a job over its life, in at most POINTS steps.

    of_job: from `during`. `single`: number of intervals in blocks of one, `outside`: those of them below lower or above
    upper, in seconds.
    """
    return f"""
WITH selected AS (
    SELECT ended_at AS t, "count" AS n, sum_seconds AS s, min_seconds AS least, max_seconds AS longest,
        min(t) OVER () AS first, max(t) OVER () AS last
    FROM blocks WHERE {of_job} AND class_id = {class_id:d}
)
SELECT max(t) AS ended_at, sum(n)::BIGINT AS intervals, min(least) AS least, sum(s) / sum(n) AS mean,
    max(longest) AS longest, count(*) FILTER (n = 1) AS single,
    count(*) FILTER (n = 1 AND (s < {lower!r} OR s > {upper!r})) AS outside
FROM selected GROUP BY least(floor({POINTS} * (t - first) / nullif(last - first, 0)), {POINTS - 1}) ORDER BY 1"""


def thinned(of_job: str, class_id: int, step: int) -> str:
    """The first and the slowest of each `step` consecutive blocks of a class of a job: end and mean interval."""
    return f"""
WITH numbered AS (
    SELECT ended_at, sum_seconds / "count" AS seconds, row_number() OVER (ORDER BY world, first_index) - 1 AS number
    FROM blocks WHERE {of_job} AND class_id = {class_id:d}
)
SELECT ended_at, seconds FROM numbered
QUALIFY number % {step} = 0 OR seconds = max(seconds) OVER (PARTITION BY number // {step}) ORDER BY ended_at"""


def band(workload: str, class_id: int, before: float) -> str:
    """The last band of a class that was fitted before a time (Unix seconds), else the first one after it.

    Later bands may contain the job that is asked about; after a log was read again there are only such.
    """
    return f"""
SELECT method, samples, runs, lower_seconds, expected_seconds, upper_seconds FROM bands
WHERE workload = {literal(workload)} AND class_id = {class_id:d} AND kind = 'interval'
    AND method NOT IN ('gev', 'bootstrap')
ORDER BY fitted_at >= {before:.3f}, CASE WHEN fitted_at < {before:.3f} THEN -log_offset ELSE log_offset END LIMIT 1"""


def node_times(of_job: str, onset_at: float) -> str:
    """Seconds of own work and of waiting per rank and sync point, by node, before and since an onset."""
    return f"""
SELECT host, ended_at > {onset_at:.3f} AS since, max(ranks) AS ranks,
    sum(own_seconds) / sum("count" * ranks)::DOUBLE AS own, sum(wait_seconds) / sum("count" * ranks) AS wait
FROM node_blocks WHERE {of_job} AND "count" > 0 GROUP BY host, since ORDER BY host, since"""


def late_ranks(of_job: str, onset_at: float) -> str:
    """Ranks that arrived last on their node since an onset: share of sync points and mean delay, the worst first."""
    return f"""
WITH selected AS (
    SELECT *, sum("count") OVER (PARTITION BY host)::DOUBLE AS syncs FROM node_blocks
    WHERE {of_job} AND ranks > 1 AND ended_at > {onset_at:.3f}
)
SELECT host, last_rank AS rank, sum(last_count)::DOUBLE / any_value(syncs) AS share,
    sum(late_seconds) / nullif(sum(last_count), 0) AS late
FROM selected GROUP BY host, last_rank ORDER BY share * late DESC LIMIT 8"""


def workers(of_job: str, most: int, onset_at: float = -1.0) -> str:
    """Seconds per step of the workers of a training since an onset, those with most own work first.

    processor, updates: parts of own work on a processor, and in updates of the parameters. most: limit of rows.
    """
    return f"""
SELECT host, rank, sum("count")::BIGINT AS steps, sum(own_seconds) / sum("count") AS own,
    sum(cpu_seconds) / sum("count") AS processor, sum(update_seconds) / sum("count") AS updates,
    sum(wait_seconds) / sum("count") AS wait
FROM workers WHERE {of_job} AND ended_at > {onset_at:.3f} GROUP BY host, rank ORDER BY own DESC, rank LIMIT {most:d}"""


def late_nodes(of_job: str) -> str:
    """Seconds of own work and of waiting by node, and the share of sync points in which the others waited for it.

    Blocks of nodes nest: a range is the longest block of any node at its place, and compares the nodes whose blocks
    cover all of it. `late_share` is that of the sync points of all such ranges, NULL where there is none.
    """
    return f"""
WITH selected AS (SELECT * FROM node_blocks WHERE {of_job} AND "count" > 0),
begun AS (
    SELECT *, coalesce(first_index >= max(first_index + length) OVER (
        PARTITION BY world ORDER BY first_index, length DESC, host ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true) AS begins FROM selected
),
numbered AS (
    SELECT *, sum(begins::INTEGER) OVER (PARTITION BY world ORDER BY first_index, length DESC, host) AS number
    FROM begun
),
parts AS (
    SELECT world, number, host, sum(length) AS covered, sum(least_wait_seconds) / sum("count") AS least_wait,
        max(max(length)) OVER (PARTITION BY world, number) AS length
    FROM numbered GROUP BY world, number, host
),
late AS (
    SELECT arg_min(host, least_wait) AS host, any_value(length) AS length FROM parts WHERE covered = length
    GROUP BY world, number HAVING count(*) > 1
)
SELECT host, max(ranks) AS ranks, sum(own_seconds) / sum("count" * ranks) AS own_seconds,
    sum(p2p_seconds + wait_seconds) / sum("count" * ranks) AS waited_seconds,
    CASE WHEN (SELECT count(*) FROM late) > 0 THEN
        coalesce((SELECT sum(length) FROM late WHERE late.host = selected.host), 0) / (SELECT sum(length) FROM late)
    END AS late_share
FROM selected GROUP BY host ORDER BY late_share DESC NULLS LAST, host"""


def alarms(now: float) -> JointQuery:
    """The last row of each alarm that was not taken back, of running jobs first, then the newest, by user in turn."""
    text = f"""
WITH recent AS (SELECT * FROM scores WHERE time > {now - PAST_DAYS * _DAY:.0f}),
latest AS (SELECT job, final, alarmed_at AS last_at FROM (FROM recent {newest("job")}) WHERE {ALARMED}),
alarm AS (
    FROM recent SEMI JOIN latest ON recent.job = latest.job AND (latest.final = 1 OR alarmed_at <= last_at)
    WHERE {ALARMED} {newest("job", "alarmed_at")}
)
SELECT s.job, j.app, j.user, j.ranks, s.state, s.score, s.alarmed_at, s.recovered_at, s.sentence, r.ended_at,
    row_number() OVER (PARTITION BY j.user ORDER BY r.ended_at IS NULL DESC, s.alarmed_at DESC) AS place
FROM alarm s JOIN jobs j USING (job) LEFT JOIN runs r USING (job)
WHERE j.cluster <> 'canary' ORDER BY place, s.alarmed_at DESC LIMIT {MAX_ALARMS}"""
    raised = newest_first("alarmed_at")
    order = fairly(lambda row: (row["ended_at"] is not None, raised(row)), MAX_ALARMS, MAX_ALARMS, by_place=True)
    return JointQuery(text, order)


def suspects(count: int) -> JointQuery:
    """The newest row of each node that delays its jobs, those with most evidence first; of shards, one of each."""
    text = f"""
WITH newest AS (SELECT * FROM suspects {newest("host")})
SELECT host, jobs, blamed, score, excess, suspected, advice, time FROM newest WHERE score >= 0.5
ORDER BY suspected DESC, score DESC LIMIT {count}"""
    return JointQuery(text, joined(lambda row: (-row["suspected"], -row["score"]), count))


def applications(user: str | None, part: str = "") -> JointQuery:
    """Applications with successful runs, the latest first. user: whose runs count, None for all. part: of the name.

    `seconds`: the median of the runtimes.
    """
    named = f"AND contains(lower(j.app), {literal(part.lower())})" if part else ""
    text = f"""
SELECT j.cluster, j.app, count(*) AS runs, min(j.ranks) AS least,
    max(j.ranks) AS most, max(r.ended_at) AS ended_at, {sample("r.runtime_seconds")} AS sample
FROM jobs j JOIN runs r USING (job)
WHERE r.exit_status = 0 AND j.cluster <> 'canary' {_run_by(user)} {named}
GROUP BY j.cluster, j.app ORDER BY ended_at DESC LIMIT {MAX_APPLICATIONS}"""

    def fold(rows: Sequence[Row]) -> Row:
        (seconds,) = quantiles(((row["runs"], row["sample"]) for row in rows), [0.5])
        counts = {"runs": sum(row["runs"] for row in rows), "least": min(row["least"] for row in rows)}
        ends = {name: max(row[name] for row in rows) for name in ("most", "ended_at")}
        return rows[0] | counts | ends | {"seconds": seconds}

    return JointQuery(text, grouped(("cluster", "app"), fold, newest_first("ended_at"), MAX_APPLICATIONS))


def problems(cluster: str, app: str, user: str | None) -> JointQuery:
    """Sets of parameters of an application by descending number of successful runs."""
    text = f"""
SELECT j.params, count(*) AS runs, max(j.ranks) AS most FROM jobs j JOIN runs r USING (job)
WHERE j.cluster = {literal(cluster)} AND j.app = {literal(app)} AND r.exit_status = 0 {_run_by(user)}
GROUP BY j.params ORDER BY runs DESC, most DESC LIMIT {MAX_PROBLEMS}"""

    def fold(rows: Sequence[Row]) -> Row:
        return rows[0] | {"runs": sum(row["runs"] for row in rows), "most": max(row["most"] for row in rows)}

    return JointQuery(text, grouped(("params",), fold, lambda row: (-row["runs"], -row["most"]), MAX_PROBLEMS))


def runtime_changes(workload: str, *, every_group: bool = False) -> JointQuery:
    """What was stated of changes of a workload, or of all works of a family or an application, the newest first.

    workload: its name, or with `every_group` what the names begin with.
    """
    condition = f"starts_with(source, {literal(workload)})" if every_group else f"source = {literal(workload)}"
    text = f"""
SELECT source, detail, time FROM events WHERE kind = 'runtime-changed' AND {condition} ORDER BY time DESC LIMIT 8"""
    return JointQuery(text, joined(newest_first("time"), 8))


def scales(cluster: str, app: str, params: str, user: str | None) -> JointQuery:
    """Quantiles of the runtimes of one set of parameters by scale and group of like work."""
    subject = f"cluster = {literal(cluster)} AND app = {literal(app)} AND params = {literal(params)}"
    text = f"""
SELECT j.ranks, j.nodes, j.workload, count(*) AS runs, {sample("r.runtime_seconds")} AS sample
FROM {grouped_jobs(subject)} j JOIN runs r USING (job)
WHERE r.exit_status = 0 {_run_by(user)}
GROUP BY j.ranks, j.nodes, j.workload
ORDER BY j.ranks, j.nodes, median(r.runtime_seconds), j.workload LIMIT {MAX_SCALES}"""

    def fold(rows: Sequence[Row]) -> Row:
        found = quantiles(((row["runs"], row["sample"]) for row in rows), [0.05, 0.5, 0.95])
        total = {"runs": sum(row["runs"] for row in rows)}
        return rows[0] | total | dict(zip(("low", "middle", "high"), found, strict=True))

    def order(row: Row) -> tuple[int, int, float, str]:
        return row["ranks"], row["nodes"], row["middle"], row["workload"]

    return JointQuery(text, grouped(("ranks", "nodes", "workload"), fold, order, MAX_SCALES))


def outcomes(cluster: str, app: str, user: str | None) -> JointQuery:
    """Outcomes of the predictions for an application, the newest first."""
    text = f"""
SELECT o.job, o.result, o.expected_seconds, o.actual_seconds, o.relative_error, j.ranks, o.time
FROM outcomes o JOIN jobs j USING (job)
WHERE o.application = {literal(f"{cluster}/{app}")} {_run_by(user)} ORDER BY o.log_offset DESC LIMIT {MAX_OUTCOMES}"""
    return JointQuery(text, joined(newest_first("time"), MAX_OUTCOMES))


def events() -> JointQuery:
    """The newest events of the pipeline."""
    text = f'SELECT source, kind, "rows", detail, time FROM events ORDER BY log_offset DESC LIMIT {MAX_EVENTS}'
    return JointQuery(text, joined(newest_first("time"), MAX_EVENTS))


def ended_runs(app: str, cluster: str | None, since: float) -> JointQuery:
    """The runs of an application that ended since a time (Unix seconds), with any parameters and exit status.

    workload: the group of like work.
    """
    where = f"app = {literal(app)}" + (f" AND cluster = {literal(cluster)}" if cluster else "") + " AND ranks > 0"
    text = f"""
SELECT jobs.job, cluster, workload, params, ranks, nodes, ended_at, runtime_seconds, exit_status,
    job IN ({_alarmed(since)}) AS alarmed
FROM {grouped_jobs(where)} jobs JOIN runs USING (job) WHERE {_ended(since)} ORDER BY ended_at"""
    return JointQuery(text, joined(lambda row: row["ended_at"]))


class ProblemRuns(NamedTuple):
    """Selects the runs of one problem that ended since a time (Unix seconds). params: JSON as in the log.

    known: their rows of `ended_runs`, with which less of the log is read.
    """

    app: str
    cluster: str
    params: str
    since: float
    known: Sequence[Row] = ()

    @property
    def subject(self) -> str:
        """The condition for rows of `jobs`."""
        return f"app = {literal(self.app)} AND cluster = {literal(self.cluster)} AND params = {literal(self.params)}"

    @property
    def jobs(self) -> str:
        """The names of the jobs, as a list or a SELECT."""
        if 0 < len(self.known) <= MAX_NAMED:
            return _texts(row["job"] for row in self.known)
        return f"SELECT job FROM jobs JOIN runs USING (job) WHERE {self.subject} AND {_ended(self.since)}"

    @property
    def healthy(self) -> str:
        """The names of the jobs that succeeded and never alarmed, likewise."""
        if 0 < len(self.known) <= MAX_NAMED:
            return _texts(row["job"] for row in self.known if row["exit_status"] == 0 and not row["alarmed"])
        return f"{self.jobs} AND exit_status = 0 AND job NOT IN ({_alarmed(self.since)})"

    def forecasts(self) -> JointQuery:
        """Predictions made while the jobs ran, with their outcomes, the oldest first."""
        text = f"""
SELECT predictions.*, actual_seconds, result, outcomes.relative_error
FROM predictions JOIN outcomes USING (job, method) WHERE job IN ({self.jobs}) ORDER BY made_at, job"""
        return JointQuery(text, joined(lambda row: (row["made_at"], row["job"])))

    def alarms(self) -> JointQuery:
        """The last row of each job with an alarm, the newest alarm first."""
        rows = f"FROM scores WHERE job IN ({self.jobs}) AND {_while_it_ran(self.since)} {newest('job')}"
        text = f"FROM ({rows}) WHERE {ALARMED} ORDER BY alarmed_at DESC"
        return JointQuery(text, joined(newest_first("alarmed_at")))

    def classes(self) -> JointQuery:
        """Classes of intervals of the healthy runs, as `classes` has them."""

        def fold(rows: Sequence[Row]) -> Row:
            times = [row["reported_at"] for row in rows]
            sums = {name: sum(row[name] for row in rows) for name in ("rows", "intervals", "seconds")}
            return rows[0] | sums | {"reported_at": max(times)}

        merge = grouped(("class_id",), fold, newest_first("seconds"))

        def shared(parts: Sequence[Sequence[Row]]) -> list[Row]:
            found = merge(parts)
            total = sum(row["seconds"] for row in found)
            return [row | {"share": row["seconds"] / total if total else 0.0} for row in found]

        return JointQuery(classes(self._blocks, MAX_CLASSES), shared)

    def sizes(self, class_ids: Iterable[int]) -> JointQuery:
        """The numbers of single intervals of each class and workload of the healthy runs: `size`."""
        text = f"SELECT workload, class_id, count(*) AS size {self._singles(class_ids)} GROUP BY ALL"

        def fold(rows: Sequence[Row]) -> Row:
            return rows[0] | {"size": sum(row["size"] for row in rows)}

        return JointQuery(text, grouped(("workload", "class_id"), fold, lambda row: (row["workload"], row["class_id"])))

    def intervals(self, class_ids: Collection[int], steps: Mapping[tuple[str, int], int]) -> JointQuery:
        """A sample of the single intervals of classes: of a workload and class one in so many."""
        # Sampling by hash: the same log gives the same sample.
        sampled = ", ".join(f"({literal(name)}, {one:d}, {step:d})" for (name, one), step in steps.items())
        text = f"""
WITH steps AS (SELECT * FROM (VALUES {sampled}) AS given (workload, class_id, step)),
singles AS (SELECT workload, class_id, sum_seconds, hash(job, world, first_index) AS drawn {self._singles(class_ids)})
SELECT workload, class_id, sum_seconds, drawn FROM singles JOIN steps USING (workload, class_id)
WHERE drawn % step::UBIGINT = 0 ORDER BY drawn"""
        return JointQuery(text, joined(lambda row: row["drawn"]))

    def _singles(self, class_ids: Iterable[int]) -> str:
        of_classes = f'"count" = 1 AND class_id IN ({", ".join(map(str, class_ids))}) AND {self._blocks}'
        return f"FROM (SELECT * FROM blocks WHERE {of_classes}) JOIN {grouped_jobs(self.subject)} jobs USING (job)"

    @property
    def _blocks(self) -> str:
        """The condition for blocks of the healthy runs. The bounds in time let DuckDB skip most of a long log."""
        begun, ended = self.since - OPEN_DAYS * _DAY, ""
        if self.known:
            begun = min(row["ended_at"] - row["runtime_seconds"] for row in self.known) - SLACK_SECONDS
            ended = f" AND ended_at <= {max(row['ended_at'] for row in self.known) + SLACK_SECONDS:.0f}"
        return f"job IN ({self.healthy}) AND ended_at >= {begun:.0f}{ended}"


def bands(workloads: Iterable[str], condition: str = "true") -> JointQuery:
    """The newest band of each class and method of these workloads, by samples: shards may share a workload."""
    text = f"""
SELECT * FROM bands WHERE workload IN ({_texts(workloads)}) AND {condition}
{newest("workload", "class_id", "method")}"""
    return JointQuery(text, joined(lambda row: row["samples"]))


def _alarmed(since: float) -> str:
    """A SELECT of the names of the jobs with an alarm, with those that ended since a time (Unix seconds)."""
    return f"SELECT job FROM (FROM scores WHERE {_while_it_ran(since)} {newest('job')}) WHERE {ALARMED}"


def _while_it_ran(since: float) -> str:
    """The condition for scores of a job that ended since a time: none runs longer than OPEN_DAYS."""
    return f"time >= {since - OPEN_DAYS * _DAY:.0f}"


def _ended(since: float) -> str:
    return f"ended_at >= {since!r} AND runtime_seconds > 0 AND isfinite(runtime_seconds)"


def _texts(values: Iterable[str]) -> str:
    return ", ".join(map(literal, sorted(values))) or "''"


def _run_by(user: str | None) -> str:
    return "" if user is None else f"AND j.user = {literal(user)}"
