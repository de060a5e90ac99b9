"""Which jobs a page, a search or `barograph status` asks for, and the query of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from barograph.views.collectors.joint_query import JointQuery, fairly, joined
from barograph.views.log import Row
from barograph.views.queries import ALARMED, OPEN_DAYS, newest
from barograph.views.states import KNOWN, RECOVERED, UNKNOWN
from barograph_collector.storage.text import literal

NODE_DAYS: Final = 30
"""Age in days up to which the jobs of a node are found."""
NAMES: Final = 5_000
"""Names among which similar ones are searched."""
_DAY: Final = 86400
_DISPLAYED: Final = f"""CASE WHEN {ALARMED} AND NOT (isfinite(score) AND score > 1) THEN {literal(RECOVERED.name)}
        WHEN state IN ({", ".join(map(literal, KNOWN))}) THEN state ELSE {literal(UNKNOWN.name)} END"""
"""The name of the displayed state of a job that is not silent, as `display_state` has it."""


@dataclass(frozen=True)
class JobQuery:
    """Conditions on jobs; an empty one is met by all.

    state: name of a displayed state. since: Unix seconds, of the end, of running jobs of the begin. name: of a job, or
    its number in the batch system. search: a part of the name of a job, an application or a node. ended: whether the
    job is over. watched: no imported runs. viewer: the user whose jobs alone are visible.
    """

    user: str = ""
    app: str = ""
    state: str = ""
    since: float = 0.0
    name: str = ""
    search: str = ""
    ended: bool | None = None
    watched: bool = False
    viewer: str | None = None

    def joint(self, now: float, quota: int, limit: int) -> JointQuery:
        """The newest jobs with their last verdicts: running ones first, imported ones last.

        Running ones have their predicted runtimes. At most `limit`, and `quota` of a user, so that nobody takes the
        places of others. `of_user`: all of this user.
        """
        order = 'imported, ended_at DESC NULLS FIRST, started_at DESC, "number" DESC'

        def cut(source: str) -> str:
            return f"""
    SELECT *, row_number() OVER (PARTITION BY "user" ORDER BY {order}) AS place,
        count(*) OVER (PARTITION BY "user") AS of_user
    FROM {source} QUALIFY place <= {quota} ORDER BY {order} LIMIT {limit}"""

        # Scores are many: those of the jobs that are shown suffice, unless the verdict is a condition.
        first, last = cut("met"), f"SELECT * FROM judged ORDER BY {order}"
        if self.state:
            first, last = "SELECT * FROM met", cut(f"judged WHERE displayed = {literal(self.state)}")
        text = f"""
WITH met AS (
    SELECT j.job, j.workload, j.cluster, j.app, j.user, j.ranks, j.started_at, j.log_offset AS "number",
        r.ended_at, r.runtime_seconds, r.exit_status, coalesce(r.imported, 0) AS imported
    FROM jobs j LEFT JOIN runs r USING (job) WHERE {self._facts(now)}
),
selected AS ({first}),
verdict AS (
    SELECT job, state, score, slowdown, onset_at, sentence FROM scores SEMI JOIN selected USING (job) {newest("job")}
),
found AS (SELECT job, workload FROM assignments SEMI JOIN selected USING (job) {newest("job")}),
expected AS (
    SELECT job, lower_seconds, expected_seconds, upper_seconds
    FROM predictions SEMI JOIN (FROM selected WHERE ended_at IS NULL) USING (job) {newest("job")}
),
judged AS (
    SELECT s.* REPLACE (coalesce(f.workload, s.workload) AS workload), v.* EXCLUDE (job), {_DISPLAYED} AS displayed,
        e.* EXCLUDE (job)
    FROM selected s LEFT JOIN verdict v USING (job) LEFT JOIN found f USING (job) LEFT JOIN expected e USING (job)
)
{last}"""
        return JointQuery(text, fairly(order_of, quota, limit))

    def _facts(self, now: float) -> str:
        """The conditions on what is known without a verdict."""
        over, running = "r.job IS NOT NULL", f"r.job IS NULL AND j.started_at > {now - OPEN_DAYS * _DAY:.0f}"
        conditions = ["j.cluster <> 'canary'"]
        conditions.append({True: over, False: running, None: f"({over} OR {running})"}[self.ended])
        equal = (("user", self.user), ("app", self.app))
        conditions += [f"j.{column} = {literal(value)}" for column, value in equal if value]
        if self.viewer is not None:
            conditions.append(f"j.user = {literal(self.viewer)}")
        if self.since and self.ended:
            # The bounds let DuckDB skip most of a long log.
            begun = self.since - OPEN_DAYS * _DAY
            conditions.append(f"r.ended_at >= {self.since!r} AND j.started_at >= {begun!r}")
        elif self.since:
            conditions.append(f"coalesce(r.ended_at, j.started_at) >= {self.since!r}")
        if self.watched:
            conditions.append("coalesce(r.imported, 0) = 0")
        if self.name:
            conditions.append(f"({_named(self.name)})")
        if self.search:
            on_node = f"SELECT job FROM node_blocks WHERE host = {literal(self.search)}"
            recent = f"ended_at > {now - NODE_DAYS * _DAY:.0f}"
            part = literal(self.search.lower())
            conditions.append(
                f"({_named(self.search)} OR contains(lower(j.job), {part}) OR lower(j.app) = {part}"
                f" OR j.host = {literal(self.search)} OR j.job IN ({on_node} AND {recent}))"
            )
        return " AND ".join(conditions)


def order_of(row: Row) -> tuple[int, float, float, int]:
    """What rows of a `JobQuery` are sorted by."""
    ended_at = math.inf if row["ended_at"] is None else row["ended_at"]
    return row["imported"], -ended_at, -row["started_at"], -row["number"]


def names(column: str) -> JointQuery:
    """The newest different values of a column of `jobs`, as `name`."""
    text = f'SELECT "{column}" AS name FROM jobs GROUP BY name ORDER BY max(log_offset) DESC LIMIT {NAMES}'
    return JointQuery(text, joined(lambda row: row["name"]))


def _named(name: str) -> str:
    """The condition for jobs of this name, or of this number in the batch system."""
    return f"j.job = {literal(name)} OR starts_with(split_part(j.job, '/', 2), {literal(f'{name}.')})"
