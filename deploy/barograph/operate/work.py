"""`barograph work`: the groups of like work, why a run is in its group, and what people know better."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from barograph.cli import CommandError, Parser
from barograph.operate import work_edits
from barograph.terminal import console
from barograph.views import queries
from barograph.views.collectors.joint_query import JointQuery, grouped, joined, quantiles, sample
from barograph.views.log import Row, rows_of
from barograph.views.queries import newest_first
from barograph.views.refusal import NothingKnown, OpenedLogs, opened_each, similar
from barograph.views.words import local, seconds
from barograph_agent.protocol import wire
from barograph_agent.settings import agent, places
from barograph_collector.storage.text import literal
from barograph_modeler.recognition.edits import WorkEdit

RUNS: Final = 20
"""Runs of a group that are shown, the newest."""
NAMES: Final = 5_000
"""Names among which similar ones are looked for."""
LATEST: Final = f"""
latest AS (SELECT * FROM assignments {queries.newest("job")}),
verdicts AS (SELECT job, state FROM scores WHERE final = 1 {queries.newest("job")}),
ends AS (SELECT job, max(runtime_seconds) AS runtime_seconds FROM runs GROUP BY job),
asked AS (SELECT * FROM works {queries.newest("job")})
"""
NAMED: Final = JointQuery(
    "SELECT target, arg_max(argument, time) AS name, max(time) AS time FROM work_edits WHERE action = 'name'"
    " GROUP BY 1",
    joined(lambda row: row["time"]),
)
_HOW: Final = {
    "first": "the first run of this work",
    "same": "asked for the same as earlier runs",
    "like": "like earlier runs but for what does not matter",
    "merged": "found to be like other runs at its end",
    "none": "nothing is known of what was asked for",
}


def groups(logs: OpenedLogs, app: str, limit: int) -> list[Row]:
    """The groups that had a run last, newest first. app: of this application only, unless empty."""
    selected = f"WHERE app = {literal(app)}" if app else ""
    text = f"""
    WITH {LATEST}
    SELECT latest.workload AS workload, any_value(latest.family) AS family, count(*) AS runs,
        count(*) FILTER (state = 'healthy') AS healthy, count(*) FILTER ({queries.ALARMED}) AS alarms,
        count(*) FILTER (state <> 'unknown') AS judged,
        min(latest.time) AS first_at, max(jobs.started_at) AS started_at,
        count(runtime_seconds) AS ended, {sample("runtime_seconds")} AS sample,
        coalesce(arg_min(latest.reason, latest.time) FILTER (how IN ('first', 'none')), '') AS reason,
        arg_max(plain, latest.time) AS plain
    FROM latest JOIN jobs USING (job) LEFT JOIN verdicts USING (job) LEFT JOIN ends USING (job)
        LEFT JOIN asked USING (job) {selected}
    GROUP BY latest.workload ORDER BY max(jobs.started_at) DESC LIMIT {limit}
    """
    merge = grouped(("workload",), _fold, newest_first("started_at"), limit)
    found = JointQuery(text, merge).ask(logs.readers, limit)
    names = {row["target"]: row["name"] for row in NAMED.ask(logs.readers, wire.MAX_SQL_ROWS)}
    return [row | {"name": names.get(row["workload"], "")} for row in found]


def _fold(rows: Sequence[Row]) -> Row:
    """A group, of its runs in each log."""
    first, last = min(rows, key=lambda row: row["first_at"]), max(rows, key=lambda row: row["started_at"])
    samples = [(row["ended"], row["sample"]) for row in rows if row["ended"]]
    return {
        **{name: first[name] for name in ("workload", "family")},
        **{name: sum(row[name] for row in rows) for name in ("runs", "judged", "healthy", "alarms")},
        "started_at": last["started_at"],
        "runtime_seconds": quantiles(samples, [0.5])[0] if samples else None,
        "reason": first["reason"],
        "plain": last["plain"],
    }


def runs(logs: OpenedLogs, condition: str) -> list[Row]:
    """The newest runs that meet a condition on `latest`, with what was asked for."""
    text = f"""
    WITH {LATEST}
    SELECT latest.job AS job, latest.workload AS workload, family, how, latest.reason AS reason, latest.time AS time,
        state, runtime_seconds, executable, program, script, words, inputs, folder, threads, plain,
        asked.reason AS missing
    FROM latest LEFT JOIN verdicts USING (job) LEFT JOIN ends USING (job) LEFT JOIN asked USING (job)
    WHERE {condition} ORDER BY time DESC LIMIT {RUNS}
    """
    return JointQuery(text, joined(newest_first("time"), RUNS)).ask(logs.readers, RUNS)


def groups_table(found: Iterable[Row]) -> Table:
    """One line per group."""
    table = Table(title="Work", title_justify="left")
    for name in ("workload", "runs", "healthy", "alarms", "runtime", "last", "asked for"):
        table.add_column(name, justify="right" if name in ("runs", "healthy", "alarms", "runtime") else "left")
    for row in found:
        words = plain_words(row) or row["reason"].removeprefix("first run of this work").removeprefix("; ")
        about = ": ".join(text for text in (row["name"], words) if text)
        table.add_row(
            row["workload"],
            str(row["runs"]),
            str(row["healthy"]) if row["judged"] else "-",
            str(row["alarms"]) if row["judged"] else "-",
            seconds(row["runtime_seconds"]),
            local(row["started_at"]),
            about,
        )
    return table


def runs_table(found: Iterable[Row]) -> Table:
    """One line per run of a group."""
    table = Table(title=f"The newest {RUNS} runs", title_justify="left")
    for name in ("job", "begun", "verdict", "runtime", "why it is here"):
        table.add_column(name, justify="right" if name == "runtime" else "left")
    for row in found:
        verdict = row["state"] or "no verdict yet"
        table.add_row(row["job"], local(row["time"]), verdict, seconds(row["runtime_seconds"]), row["reason"])
    return table


def plain_words(row: Row) -> str:
    """The command line, where the site keeps it."""
    words = _parsed(row["plain"])
    return " ".join(map(str, words)) if isinstance(words, list) else ""


def features(row: Row) -> list[str]:
    """What was asked for, line by line."""
    if row["program"] is None:
        return ["no row of `works`: the site keeps nothing of command lines, or the run was imported"]
    lines = [f"executable {row['executable'] or 'unknown'}, program {row['program'] or 'unknown'}"]
    lines += [f"script {row['script']}"] if row["script"] else []
    lines += [f"threads {row['threads']}"] if row["threads"] >= 0 else []
    words, inputs = _parsed(row["words"]), _parsed(row["inputs"])
    if not isinstance(words, list) or not isinstance(inputs, list):
        return [*lines, "words and inputs: not the JSON that was expected"]
    told = _parsed(row["plain"])
    for number, word in enumerate(words):
        plain = f" ({told[number]})" if isinstance(told, list) and number < len(told) else ""
        lines.append(f"word {number + 1} {word}{plain}")
    for one in inputs:
        name = f"input {one['word'] + 1}" if one["word"] >= 0 else "standard input"
        lines.append(f"{name} {one['digest'] or 'not read'}, {one['bytes']:,} bytes")
    folder = _parsed(row["folder"])
    for name, content in sorted(folder.items()) if isinstance(folder, dict) else ():
        lines.append(f"file {name} {content}")
    return [*lines, f"missing: {row['missing']}"] if row["missing"] else lines


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except json.JSONDecodeError:
        return None


def workload_of(logs: OpenedLogs, name: str) -> str:
    """The group that a name is: its own, or one that somebody gave it. Raises NothingKnown."""
    groups = "SELECT DISTINCT workload FROM assignments"
    order = joined(lambda row: row["workload"])
    if JointQuery(f"{groups} WHERE workload = {literal(name)}", order).ask(logs.readers, 1):
        return name
    for row in NAMED.ask(logs.readers, wire.MAX_SQL_ROWS):
        if row["name"] == name:
            return str(row["target"])
    known = JointQuery(f"{groups} LIMIT {NAMES}", order).ask(logs.readers, NAMES)
    near = similar(name, (row["workload"] for row in known)) or "; `barograph work` lists the groups"
    raise NothingKnown(f"{name!r} is no job and no group of the log{near}")


def show_one(logs: OpenedLogs, console: Console, name: str) -> None:
    """Print a job or a group. Raises NothingKnown."""
    if found := runs(logs, f"latest.job = {literal(name)}"):
        row = found[0]
        console.print(f"{row['job']}: {row['workload']}", highlight=False)
        console.print(f"  {row['how']}: {_HOW.get(row['how'], '')}; {row['reason']}", highlight=False)
        for line in features(row):
            console.print(f"  {line}", highlight=False)
        return
    workload = workload_of(logs, name)
    for row in queries.runtime_changes(workload).ask(logs.readers, 8):
        console.print(f"{local(row['time'])}: {row['detail']}", highlight=False)
    console.print(runs_table(runs(logs, f"latest.workload = {literal(workload)}")))


def edit_of(logs: OpenedLogs, options: argparse.Namespace) -> WorkEdit:
    """The edit that the options ask for. Raises NothingKnown and CommandError."""
    if options.split:
        if not (found := runs(logs, f"latest.job = {literal(options.name)}")):
            raise NothingKnown(f"{options.name!r} is no job of the log, expected one that is to be split off")
        others = runs(logs, f"latest.workload = {literal(found[0]['workload'])}")
        return work_edits.splitting(found[0], others, options.by)
    workload = workload_of(logs, options.name)
    if options.merge is not None:
        return work_edits.merging(workload, workload_of(logs, options.merge))
    return work_edits.naming(workload, options.call)


def main(arguments: Sequence[str]) -> int:
    """Print or change groups, a group, or a job; 69 if a collector does not answer, 65 for an unknown name."""
    parser = Parser(
        prog="barograph work", description="Show the groups of like work, or why a run is in its group; or change them."
    )
    places.add_collector_option(parser, agent.endpoint(os.environ), several=True)
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="a job, or a group: its runs")
    parser.add_argument("--app", default="", metavar="NAME", help="groups of this application only")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="groups shown (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="groups as JSON, an object per line")
    editing = parser.add_mutually_exclusive_group()
    editing.add_argument("--call", metavar="TEXT", help="give the group a name that people know; empty: none")
    editing.add_argument("--merge", metavar="GROUP", help="the runs of the group are those of this one from now on")
    editing.add_argument("--split", action="store_true", help="the job is other work than its group")
    by = "with --split: a feature in which they differ, such as 'word 2'; several times if several matter"
    parser.add_argument("--by", action="append", default=[], metavar="FEATURE", help=by)
    options = parser.parse_args(arguments)
    is_edit = options.split or options.merge is not None or options.call is not None
    if is_edit and not options.name:
        parser.error("expected NAME, a group or with --split a job, that is to be changed")
    if options.by and not options.split:
        parser.error("argument --by: expected with --split")
    if options.limit < 1:
        parser.error(f"argument --limit: {options.limit}, expected at least 1")
    if options.name and (options.app or options.json):
        raise CommandError("--app and --json are for the list of groups, expected no NAME with them", 2)
    out = console()
    with opened_each(options.collector, 5.0) as logs:
        if is_edit:
            edit = edit_of(logs, options)
            has_group = f"SELECT 1 FROM assignments WHERE workload = {literal(edit.target)} LIMIT 1"
            for reader in logs.readers:
                if rows_of(reader.query(has_group, 1)):
                    before = work_edits.answers(reader, edit.target)["count"]
                    work_edits.write(reader.endpoint, edit)
                    out.print(work_edits.answer(reader, edit, before), highlight=False)
            return logs.status
        if options.name:
            show_one(logs, out, options.name)
            return logs.status
        found = groups(logs, options.app, options.limit)
    if options.json:
        for row in found:
            print(json.dumps({name: value for name, value in row.items() if name != "plain" or value}))
    elif found:
        out.print(groups_table(found))
    else:
        out.print("No work is known yet: there is a group from the first run on that the modeler has seen.")
    return logs.status
