"""What `barograph predict -- COMMAND` and `--job-name` ask of the modeler: work is recognised as if it ran."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barograph.cli import CommandError
from barograph_agent.job import rules
from barograph_agent.job.identity import account, from_environment
from barograph_agent.settings import agent, places
from barograph_agent.system.system import SYSTEM
from barograph_agent.work.command import script_of
from barograph_agent.work.fingerprint import WorkRules
from barograph_agent.work.planned import PlannedCommand, evidence_of, parse_planned
from barograph_collector.daemon.service import Exit
from barograph_modeler.recognition.recorded import UnreadableSalt, recorded_evidence, salt_of, site_secret

ASKED: Final = ("executable", "program", "script", "words", "inputs", "folder", "threads", "numbers", "reason")


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the command after the first `--`."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    return list(arguments[:at]), list(arguments[at + 1 :])


def planned_fields(command: Sequence[str], app: str | None, params: dict[str, str]) -> dict[str, Any]:
    """Fields of a question about a command: what `barograph run` would send of it.

    Parameters that the site's rules find are added to `params`. Raises CommandError for a command without a program,
    and JobError.
    """
    environment = agent.environment(os.environ)
    planned = parse_planned(command, environment)
    if planned is None:
        raise CommandError(f"{' '.join(command)[:80]!r} starts no program that is found here", Exit.USAGE)
    job = from_environment(environment, command=command, app=app, params=params, user=account(), host=platform.node())
    program = script_of(planned.program, planned.arguments) or planned.program
    job = _findings(command, environment).apply_to(job, program)
    params |= job.params
    fields: dict[str, Any] = {"app": job.app} | {f"asked.{name}": text for name, text in _asked(planned, job.cluster)}
    return fields if planned.ranks is None else fields | {"ranks": str(planned.ranks)}


def recorded_fields(asked: Mapping[str, str], app: str, cluster: str) -> dict[str, Any]:
    """Fields of a question about imported runs. asked: texts by their names in `works`. Raises CommandError."""
    environment = agent.environment(os.environ)
    if agent.value_or_default("work", environment) == "none":
        return {}
    try:
        secret = site_secret(os.environ)
    except UnreadableSalt as error:
        raise CommandError(str(error)) from None
    row = recorded_evidence(salt_of(secret, cluster), app, asked).columns()
    return {f"asked.{name}": str(row[name]) for name in ASKED}


def _asked(planned: PlannedCommand, cluster: str) -> list[tuple[str, str]]:
    environment = agent.environment(os.environ)
    kept = agent.value_or_default("work", environment)
    if kept == "none":
        return []
    salt = environment.get("BAROGRAPH_SALT")
    site = WorkRules(cluster, Path(salt) if salt else None, numbers=kept in ("numbers", "plain"))
    row = evidence_of(planned, environment, site, SYSTEM).columns()
    return [(name, str(row[name])) for name in ASKED]


def _findings(command: Sequence[str], environment: Mapping[str, str]) -> rules.Findings:
    path = places.rules(environment)
    try:
        return rules.apply(rules.read(path), command) if path else rules.Findings()
    except rules.RulesError as error:
        raise CommandError(str(error), Exit.USAGE) from None
