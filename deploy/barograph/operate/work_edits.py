"""Edits of groups of like work: `barograph work` with --call, --split or --merge."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from barograph.cli import CommandError
from barograph.views.log import Row, rows_of
from barograph_agent.deliver import keys
from barograph_agent.job.identity import account
from barograph_agent.protocol.tables import IDENTIFIER
from barograph_agent.system.clock import CLOCK
from barograph_collector.client.follow import LogWriter
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.service import Exit
from barograph_collector.storage.text import literal
from barograph_modeler.recognition.edits import WorkEdit
from barograph_modeler.recognition.request import Request

ANSWER_SECONDS: Final = 10.0
MOST_NAME: Final = 60
NAMED: Final = 12
"""Features that are named in an error."""


def naming(workload: str, name: str) -> WorkEdit:
    """Give a group a name. Raises CommandError."""
    if not name.isprintable() or len(name) > MOST_NAME:
        raise CommandError(f"name is {name!r}, expected at most {MOST_NAME} printable characters", Exit.USAGE)
    return WorkEdit(workload, "name", name)


def merging(workload: str, other: str) -> WorkEdit:
    """Make the runs of a group those of another."""
    return WorkEdit(workload, "merge", other)


def splitting(job: Row, others: Sequence[Row], features: Sequence[str]) -> WorkEdit:
    """Take what a job asked for out of its group. job, others: it and runs of its group, with their rows of `works`.

    features: those that matter; if empty, the one in which the job differs. Raises CommandError if there is not one.
    """
    own = _request(job)
    requests = [one for row in others if (one := _request(row)) is not None]
    if own is None:
        raise CommandError(
            f"of {job['job']} it is not known what it was asked for, so nothing tells it apart", Exit.DATA
        )
    differ = sorted(frozenset().union(*(own.differences(one) for one in requests)))
    if not differ:
        text = f"{job['job']} was asked for the same as all known runs of {job['workload']}, so nothing tells it apart"
        raise CommandError(text, Exit.DATA)
    found = ", ".join(differ[:NAMED])
    if unknown := sorted(set(features) - set(differ)):
        raise CommandError(f"--by {unknown[0]!r}: {job['job']} differs from runs of its group in: {found}", Exit.DATA)
    if not features and len(differ) > 1:
        raise CommandError(
            f"{job['job']} differs from runs of its group in: {found}; say which matter by --by", Exit.DATA
        )
    return WorkEdit(job["workload"], "split", "\n".join(features or differ))


def write(endpoint: str, edit: WorkEdit) -> None:
    """Append the edit to the log. Raises CommandError, KeyFileError."""
    key = keys.from_environment(os.environ)
    name = account()
    editor = name if IDENTIFIER.fullmatch(name) else str(os.getuid())
    edit = edit._replace(editor=editor, time=CLOCK.now())
    writer = LogWriter(endpoint, f"{key.name if key else f'work-{editor}'}/{CLOCK.now_ns()}", key)
    writer.put("work_edits", 1, edit._asdict())
    if not writer.close(ANSWER_SECONDS):
        text = f"the collector at {endpoint} has not stored the edit; with keys it takes one from a key of role editor"
        raise CommandError(text, Exit.UNAVAILABLE)


def answers(reader: LogReader, target: str) -> Row:
    """What the modeler has said of edits of a group: how often, and `kind` and `detail` of the newest answer."""
    query = f"""SELECT count(*) AS count, arg_max(kind, log_offset) AS kind, arg_max(detail, log_offset) AS detail
        FROM events WHERE source = {literal(target)} AND kind IN ('work-edited', 'work-edit-refused')"""
    return rows_of(reader.query(query, 1))[0]


def answer(reader: LogReader, edit: WorkEdit, before: int) -> str:
    """What the modeler says of an edit, after so many answers. Raises CommandError if it refuses, or says nothing."""
    if edit.action == "name":
        return f"{edit.target} is {edit.argument}" if edit.argument else f"{edit.target} has no name"
    until = CLOCK.monotonic() + ANSWER_SECONDS
    while (newest := answers(reader, edit.target))["count"] <= before:
        if CLOCK.monotonic() >= until:
            text = "the edit is in the log; the modeler has not made it yet: it may be away"
            raise CommandError(text, Exit.UNAVAILABLE)
        CLOCK.sleep(0.2)
    if newest["kind"] == "work-edit-refused":
        raise CommandError(newest["detail"], Exit.DATA)
    return str(newest["detail"])


def _request(row: Row) -> Request | None:
    if row["program"] is None:
        return None
    try:
        return Request.of_row(row | {"reason": row["missing"]})
    except ValueError:
        return None
