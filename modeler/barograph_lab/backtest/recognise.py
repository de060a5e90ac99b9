"""`barograph backtest recognise`: how well groups of like work agree with what runs really did."""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from barograph.cli import checked
from barograph.terminal import console
from barograph.views.refusal import opened
from barograph_agent.settings import agent, places
from barograph_lab.columns import add_subject, count, note, table
from barograph_lab.studies.alerts.facility import TELLS, Facility, MadeUpJob, Plan
from barograph_lab.studies.grouping import Agreement, agreement
from barograph_lab.studies.series import BadTable

PERIODS: Final = 3
ALPHA: Final = 0.001
FOUND_FROM: Final = 3
"""Healthy runs of a work from which on its disturbed runs count as found or not."""
HEADS: Final = ("runs", "works", "groups", "precision", "recall", "Rand index", "mixed", "needless")
OUTCOME_HEADS: Final = (*HEADS, "false alarms", "found")


class Outcome(NamedTuple):
    """Of jobs: their groups, and verdicts. alarms: healthy jobs that were said to be slow."""

    groups: Agreement
    healthy: int
    alarms: int
    disturbed: int
    found: int

    @classmethod
    def of(cls, jobs: Sequence[MadeUpJob], facility: Facility) -> Self:
        """The outcome of at least two jobs."""
        healthy = [one for one in jobs if not one.disturbed]
        disturbed = [one for one in jobs if one.disturbed and one.earlier >= FOUND_FROM]
        return cls(
            agreement((one.work, facility.groups[one.name]) for one in jobs),
            len(healthy),
            sum(one.state == "slow" for one in healthy),
            len(disturbed),
            sum(one.state == "slow" for one in disturbed),
        )

    def cells(self) -> list[str]:
        """As in OUTCOME_HEADS."""
        alarms = f"{self.alarms} of {self.healthy:,} = {self.alarms / max(self.healthy, 1):.2%}"
        return [*_cells(self.groups), alarms, f"{self.found} of {self.disturbed}"]

    def json(self) -> dict[str, Any]:
        """All figures."""
        return self._asdict() | {"groups": self.groups._asdict()}


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `recognise` and its options."""
    parser = add_subject(
        subjects,
        "recognise",
        _run,
        help="groups of like work, compared with what runs really did",
        description="Compare the groups in the log with what a CSV file says that runs did; without one, make up jobs.",
    )
    places.add_collector_option(parser, agent.endpoint(os.environ))
    add = parser.add_argument
    add("file", type=Path, nargs="?", metavar="FILE.csv", help="columns job and work; its jobs are in the log")
    add("--jobs", type=count, default=Plan().jobs, metavar="N", help="of the made-up facility (default: %(default)s)")
    add("--applications", type=count, default=Plan().applications, metavar="N", help="likewise (default: %(default)s)")
    add("--seed", type=count, default=Plan().seed, metavar="N", help="likewise (default: %(default)s)")
    add("--told-by", choices=TELLS, default="", help="what tells inputs apart, of all applications (default: mixed)")
    share = checked(float, lambda share: 0 < share < 1, "a number between 0 and 1")
    add("--alpha", type=share, default=ALPHA, help="as `barograph alerts`, of the made-up jobs (default: %(default)s)")
    add("--json", action="store_true", help="print JSON")
    return parser


def _run(options: argparse.Namespace) -> None:
    """Print the agreement. Raises BadTable and OSError."""
    if options.file is not None:
        found = agreement(_labelled(options.file, options.collector))
        if options.json:
            print(json.dumps(found._asdict()))
        else:
            console().print(table("groups of the log", HEADS, [_cells(found)]))
        return
    plan = Plan(jobs=options.jobs, applications=options.applications, seed=options.seed, tell=options.told_by)
    facility = Facility(plan, alpha=options.alpha)
    jobs: list[MadeUpJob] = []
    periods: dict[float, tuple[Outcome, int]] = {}
    for job in facility.run():
        jobs.append(job)
        if len(jobs) % max(plan.jobs // 20, 1) == 0:
            note(f"{len(jobs):,} of {plan.jobs:,} jobs")
        if len(jobs) * PERIODS % plan.jobs < PERIODS and len(jobs) > 1:
            days = round(plan.days * len(jobs) / plan.jobs, 1)
            periods[days] = Outcome.of(jobs, facility), facility.state_bytes
    kinds = {tell: [one for one in jobs if one.tell == tell] for tell in TELLS}
    by_kind = {tell: Outcome.of(those, facility) for tell, those in kinds.items() if len(those) > 1}
    if options.json:
        after = [one.json() | {"days": days, "modeler_bytes": size} for days, (one, size) in periods.items()]
        print(json.dumps({"after": after, "told_apart_by": {tell: one.json() for tell, one in by_kind.items()}}))
        return
    title = f"{plan.jobs:,} made-up jobs of {plan.applications:,} applications"
    rows = [[f"{days:g}", *one.cells(), f"{size / 1e6:.1f} MB"] for days, (one, size) in periods.items()]
    console().print(table(title, ["days", *OUTCOME_HEADS, "modeler"], rows))
    told = [[tell, *one.cells()] for tell, one in by_kind.items()]
    console().print(table("by what tells their inputs apart", ["told apart by", *OUTCOME_HEADS], told))


def _labelled(file: Path, endpoint: str) -> Iterator[tuple[str, str]]:
    """Work and group of each run. Raises BadTable, OSError and NoResult."""
    with file.open(newline="") as lines:
        rows = csv.DictReader(lines)
        if missing := {"job", "work"} - set(rows.fieldnames or ()):
            raise BadTable(f"{file}: no column {min(missing)}, expected job and work")
        works = {str(row["job"]): str(row["work"]) for row in rows}
    if len(works) < 2:
        raise BadTable(f"{file}: {len(works)} jobs, expected at least 2")
    with opened(endpoint, 60.0) as reader:
        pages = [page.columns for page in reader.read_all("assignments")]
    groups = {str(job): str(name) for page in pages for job, name in zip(page["job"], page["workload"], strict=True)}
    if unknown := works.keys() - groups.keys():
        raise BadTable(f"{file}: the log has no group of {len(unknown)} of {len(works)} jobs, such as {min(unknown)}")
    return ((work, groups[job]) for job, work in works.items())


def _cells(found: Agreement) -> Sequence[str]:
    ratios = (f"{found.precision:.4f}", f"{found.recall:.4f}", f"{found.rand_index:.4f}")
    return [f"{found.runs:,}", f"{found.works:,}", f"{found.groups:,}", *ratios, f"{found.mixed}", f"{found.needless}"]
