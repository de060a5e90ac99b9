"""Which runs a report on an application is about, and what they took at each scale."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from barograph.commands.status import ALARMS
from barograph.report.log import NothingKnown, ReportLog, Row
from barograph.views.advice import plural
from barograph_modeler.maxima.sample import Floats

ALARMED: Final = ", ".join(f"'{state}'" for state in ALARMS)


@dataclass(frozen=True)
class RunsAtScale:
    """The runs on one number of ranks and nodes, in seconds, and the newest band for the next one."""

    workload: str
    ranks: int
    nodes: int
    healthy: Floats
    alarmed: Floats
    failed: int
    band: Row | None

    @property
    def name(self) -> str:
        """In words: ranks, and nodes where there are several."""
        return plural(self.ranks, "rank") + (f" on {self.nodes:,} nodes" if self.nodes > 1 else "")

    @property
    def tick(self) -> str:
        """The same for an axis."""
        return f"{self.ranks:,}" + (f"\n{self.nodes:,} nodes" if self.nodes > 1 else "")


class Where(NamedTuple):
    """Which runs are meant, as conditions of a SELECT."""

    app: str
    cluster: str
    params: str
    since: float

    @property
    def subject(self) -> str:
        """For rows of `jobs`."""
        params = self.params.replace("'", "''")
        return f"app = '{self.app}' AND cluster = '{self.cluster}' AND params = '{params}'"

    @property
    def jobs(self) -> str:
        """A SELECT of their names."""
        return f"SELECT job FROM jobs JOIN runs USING (job) WHERE {self.subject} AND {ended(self.since)}"

    @property
    def healthy(self) -> str:
        """The same for those that ended well and never alarmed."""
        return f"{self.jobs} AND exit_status = 0 AND job NOT IN (SELECT job FROM scores WHERE state IN ({ALARMED}))"


def ended(since: float) -> str:
    """The condition that a run has ended since then, Unix seconds, and that its runtime is known."""
    return f"ended_at >= {since!r} AND runtime_seconds > 0 AND isfinite(runtime_seconds)"


def ended_runs(log: ReportLog, app: str, cluster: str | None, since: float) -> list[Row]:
    """The finished runs of an application on its cluster, of any parameters. Raises NothingKnown."""
    where = f"app = '{app}'" + (f" AND cluster = '{cluster}'" if cluster else "")
    runs = log.rows(
        f"""SELECT jobs.job, cluster, workload, params, ranks, nodes, ended_at, runtime_seconds, exit_status,
          job IN (SELECT job FROM scores WHERE state IN ({ALARMED})) AS alarmed
        FROM jobs JOIN runs USING (job) WHERE {where} AND {ended(since)} AND ranks > 0 ORDER BY ended_at"""
    )
    if not runs:
        raise NothingKnown(f"no finished run of {app!r} is in the log{' since then' if since else ''}")
    clusters = sorted({run["cluster"] for run in runs})
    if len(clusters) > 1:
        raise NothingKnown(f"{app} has run on {', '.join(clusters)}, expected --cluster with one of them")
    return runs


def chosen(runs: Sequence[Row], params: Mapping[str, str]) -> tuple[str, int]:
    """The parameters meant, as the log has them, and how many others there are; without any, those of the most runs.

    Raises NothingKnown.
    """
    counts = Counter(run["params"] for run in runs)
    if not params:
        return counts.most_common(1)[0][0], len(counts) - 1
    for text in counts:
        if parsed(text) == params:
            return text, len(counts) - 1
    known = "; ".join(sorted(words(parsed(text)) for text in counts)[:5])
    raise NothingKnown(f"no run with {words(params)} in that time, expected parameters such as: {known}")


def by_scale(runs: Sequence[Row], bands: Mapping[str, Row]) -> list[RunsAtScale]:
    """Runs of one problem by scale. bands: of runtimes, by workload."""
    found: dict[str, list[Row]] = {}
    for run in runs:
        found.setdefault(run["workload"], []).append(run)

    def seconds(rows: Sequence[Row]) -> Floats:
        return np.array([row["runtime_seconds"] for row in rows], dtype=np.float64)

    scales = []
    for workload, rows in found.items():
        well = [row for row in rows if row["exit_status"] == 0]
        healthy = seconds([row for row in well if not row["alarmed"]])
        alarmed = seconds([row for row in well if row["alarmed"]])
        failed = len(rows) - len(well)
        first = rows[0]
        scales.append(
            RunsAtScale(workload, first["ranks"], first["nodes"], healthy, alarmed, failed, bands.get(workload))
        )
    return sorted(scales, key=lambda scale: (scale.ranks, scale.nodes))


def parsed(params: str) -> dict[str, str]:
    """Parameters as the log has them; none where they are no JSON object."""
    try:
        found = json.loads(params)
    except ValueError:
        found = None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def words(params: Mapping[str, str]) -> str:
    """Parameters for people."""
    return " ".join(f"{name}={value}" for name, value in sorted(params.items())) or "no parameters"
