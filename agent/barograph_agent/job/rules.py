"""A site's rules for applications: names of executables, and parameters in command lines.

The file is TOML:

    [[app]]
    match = "/lammps[^/]*/"       searched in the path of the executable (or of the script, after an interpreter)
    name = "lammps"

    [[param]]
    app = "lammps"                the whole name of the application; optional, default any
    argv = "-var x (\\d+)"        searched in the command line, words joined by spaces; the first group is the value
    name = "x"

Of a command line only the text matched by a rule's group is stored.
"""

from __future__ import annotations

import contextlib
import re
import signal
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from barograph_agent.job.identity import Job
from barograph_agent.protocol.tables import APP

MAX_ARGV: Final = 65536
MAX_VALUE: Final = 200
MAX_SEARCH_SECONDS: Final = 0.5
"""Limit on CPU time: backtracking can take exponential time, and the start of the job waits for it."""

Name = Annotated[str, msgspec.Meta(pattern=rf"^{APP.pattern}\Z")]


class RulesError(ValueError):
    """Invalid rules. The text names the file, the rule and what was expected."""


class AppRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Executables with a match of `match` in their path are named `name`."""

    match: str
    name: Name


class ParamRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first group of `argv` in the command line of application `app` is the value of parameter `name`."""

    argv: str
    name: Name
    app: str = ""


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules of a site, in the order of their file."""

    app: list[AppRule] = []
    param: list[ParamRule] = []


class Param(msgspec.Struct, frozen=True):
    """A parameter found in the command line, valid for runs of application `app` (empty: of any)."""

    app: str
    name: str
    value: str


class Findings(msgspec.Struct, frozen=True):
    """Result of the rules for one command line, part of the run's plan: rules for names, and parameters found."""

    apps: list[AppRule] = []
    params: list[Param] = []

    def apply_to(self, job: Job, program: str) -> Job:
        """The job with its final name and parameters. program: the executable of rank 0, "" if unknown.

        Raises RulesError for an expression that takes too long.
        """
        job = self._named(job.named_by(program), program)
        found = {param.name: param.value for param in reversed(self.params) if param.app in ("", job.app)}
        return msgspec.structs.replace(job, params=found | job.params) if found else job

    def _named(self, job: Job, program: str) -> Job:
        if not job.guessed:
            return job
        with _limited(self.apps):
            for rule in self.apps:
                if re.search(rule.match, program or job.app) or re.search(rule.match, job.app):
                    return msgspec.structs.replace(job, app=rule.name)
        return job


def read(path: Path) -> Rules:
    """Read and check a file of rules. Raises RulesError."""
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text()), Rules)
    except (OSError, ValueError) as error:
        text = (error.strerror or "unreadable") if isinstance(error, OSError) else str(error)
        raise RulesError(f"rules {path}: {text}, expected rules in TOML") from error
    for kind, rule in [*(("app", rule.match) for rule in rules.app), *(("param", rule.argv) for rule in rules.param)]:
        try:
            groups = re.compile(rule).groups
        except re.error as error:
            raise RulesError(f"rules {path}: {kind} rule {rule!r}: {error}, expected a regular expression") from error
        if kind == "param" and groups == 0:
            raise RulesError(f"rules {path}: param rule {rule!r} has no group, expected one around the value")
    return rules


def apply(rules: Rules, command: Sequence[str]) -> Findings:
    """Apply rules to a command line. Raises RulesError for an expression that takes too long."""
    # What is not UTF-8 in a command line cannot be stored.
    line = " ".join(command)[:MAX_ARGV].encode("utf-8", "replace").decode()
    found = []
    with _limited(rules.param):
        for rule in rules.param:
            match = re.search(rule.argv, line)
            if match is not None and match[1]:
                found.append(Param(rule.app, rule.name, match[1][:MAX_VALUE]))
    return Findings(rules.app, found)


@contextlib.contextmanager
def _limited(rules: Sequence[object]) -> Iterator[None]:
    """Limit the body to MAX_SEARCH_SECONDS of CPU time, which unlike elapsed time does not depend on the node's load.

    Raises RulesError beyond. Main thread only.
    """

    def over(number: int, frame: object) -> None:
        raise RulesError(f"rules: a search took more than {MAX_SEARCH_SECONDS:g} s, expected simpler expressions")

    if not rules:
        yield
        return
    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SEARCH_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL if before is None else before)
