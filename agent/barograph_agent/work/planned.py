"""A command without a process that can be seen, as if it were the process of rank 0."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barograph_agent.job.identity import LAUNCHERS
from barograph_agent.system.processes import Processes
from barograph_agent.system.system import System
from barograph_agent.work.fingerprint import TargetProcess, WorkEvidence, WorkRules, fingerprint

RANKS: Final = ("-n", "-np", "--np", "--ntasks", "--n")
SECONDS: Final = 5.0
"""Limit for reading inputs."""
FUTURE_SECONDS: Final = 86_400.0
"""No file was changed since the command began."""
_SHEBANG_BYTES: Final = 256


class Launcher(NamedTuple):
    """A process that has started a command, at a time in Unix seconds, in its own folder and with its own input."""

    pid: int
    started_at: float


class PlannedCommand(NamedTuple):
    """program: the path of the executable, with links resolved. arguments: with the program's name. ranks: None if the
    command has no launcher, or a launcher that is not told."""

    program: str
    arguments: Sequence[str]
    ranks: int | None

    @property
    def target(self) -> TargetProcess:
        """A process that runs this alone, of unknown id."""
        return TargetProcess(0, self.program, command=b"".join(os.fsencode(word) + b"\0" for word in self.arguments))


def parse_planned(command: Sequence[str], environment: Mapping[str, str]) -> PlannedCommand | None:
    """The program that a launcher, or the command itself, would start; None if there is none.

    The program is the first word that can be executed and is no launcher.

    >>> parse_planned(["mpiexec", "-n", "64", "/bin/sh", "job.sh"], {"PATH": "/bin"}).ranks
    64
    """
    path, ranks, is_launched = environment.get("PATH", os.defpath), None, False
    for at, word in enumerate(command):
        option, _, value = word.partition("=")
        if option in RANKS:
            value = value or (command[at + 1] if at + 1 < len(command) else "")
            ranks = int(value) if value.isascii() and value.isdecimal() else ranks
        if word.startswith("-"):
            continue
        if Path(word).name.partition(".")[0] in LAUNCHERS:  # also one that this host lacks
            is_launched = True
            continue
        if (found := shutil.which(word, path=path)) is None:
            continue
        program, arguments = _interpreted(found, [word, *command[at + 1 :]], path)
        return PlannedCommand(os.path.realpath(program), arguments, ranks if is_launched else 1)
    return None


def evidence_of(
    command: PlannedCommand, environment: Mapping[str, str], rules: WorkRules, system: System
) -> WorkEvidence:
    """Evidence of rank 0 of a command that is started now, in this folder."""
    processes = _PlannedProcess(command, environment, "self", system.clock.since_boot() + FUTURE_SECONDS)
    evidence, deadline = WorkEvidence(), system.clock.monotonic() + SECONDS
    fingerprint(evidence, deadline, command.target, rules, system._replace(processes=processes))
    return evidence


def fingerprint_ended(
    evidence: WorkEvidence,
    deadline: float,
    command: PlannedCommand,
    launcher: Launcher,
    environment: Mapping[str, str],
    rules: WorkRules,
    system: System,
) -> None:
    """Fill in the evidence of a command whose processes have ended and were not seen, as `fingerprint`."""
    born = system.clock.since_boot() - (system.clock.now() - launcher.started_at)
    processes = _PlannedProcess(command, environment, str(launcher.pid), born)
    fingerprint(evidence, deadline, command.target, rules, system._replace(processes=processes))


class _PlannedProcess(Processes):
    def __init__(
        self, command: PlannedCommand, environment: Mapping[str, str], parent: str, born_seconds: float
    ) -> None:
        """parent: the process in /proc whose folder and standard input it has."""
        super().__init__()
        self._program = command.program
        self._parent = parent
        self._environment = dict(environment)
        self._born = round(born_seconds * os.sysconf("SC_CLK_TCK"))

    def born(self, pid: int) -> int:
        return self._born

    def environment(self, pid: int) -> dict[str, str]:
        return self._environment

    def user(self, pid: int) -> int:
        return super().user(pid or self.own())

    def show(self, file: str, most: int = 2**20) -> bytes:
        return b""

    def place(self, pid: int, name: str) -> Path:
        places = {"exe": Path(self._program), "root": Path("/")}
        return places.get(name, Path("/proc") / self._parent / name)


def _interpreted(program: str, arguments: list[str], path: str) -> tuple[str, list[str]]:
    """Interpreter and arguments of a script that names one in its first line; else the same."""
    try:
        with Path(program).open("rb") as file:
            line = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return program, arguments
    if not line.startswith(b"#!"):
        return program, arguments
    words = shlex.split(os.fsdecode(line[2:]))
    if words and Path(words[0]).name == "env":
        words = words[1:]
    interpreter = shutil.which(words[0], path=path) if words else None
    return (interpreter, [*words, program, *arguments[1:]]) if interpreter else (program, arguments)
