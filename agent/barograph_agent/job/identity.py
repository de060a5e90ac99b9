"""The identity of a run, and its workload: runs of the same workload are compared."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from barograph_agent.job.batch import allocation
from barograph_agent.protocol.tables import APP, IDENTIFIER, MAX_APP

MPI_LAUNCHERS: Final = ("mpiexec", "mpirun", "orterun", "prterun", "prun", "srun", "aprun", "jsrun", "flux")
"""Programs that start ranks, as in `agent/shim/launch.c`; mpiexec.hydra and the like are launchers too."""
LAUNCHERS: Final = {*MPI_LAUNCHERS, "env", "nice", "taskset", "numactl", "time", "timeout"}
_INTERPRETER: Final = re.compile(r"python[0-9.]*|bash|sh")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.:@+-]+")


class JobError(ValueError):
    """An invalid name or parameter. The text names it, its value and what was expected."""


class Job(msgspec.Struct, frozen=True):
    """One job step on one cluster."""

    cluster: str
    id: str
    restart: int
    step: str
    user: str
    host: str
    app: str
    params: dict[str, str]
    guessed: bool = False
    """Whether the application's name was guessed from the command line."""
    scheduler: str = "none"
    nodes: int = 1
    account: str = ""
    unique_id: str = ""
    """The batch system's id that is never reused, if it has one."""

    @property
    def key(self) -> str:
        """cluster/id.restart.step: unique, though ids repeat across clusters and after a requeue."""
        return f"{self.cluster}/{self.id}.{self.restart}.{self.step}"

    def workload(self, ranks: int, nodes: int) -> str:
        """The name that comparable runs share: cluster/app@ranksxnodes, plus a hash of any parameters."""
        name = f"{self.cluster}/{self.app}@{ranks}x{nodes}"
        if not self.params:
            return name
        canonical = msgspec.json.encode(sorted(self.params.items()))
        return f"{name}:{hashlib.blake2b(canonical, digest_size=4).hexdigest()}"

    def row(self, ranks: int, nodes: int, started_at: float) -> dict[str, Any]:
        """The row of table `jobs`. started_at: Unix seconds."""
        same = ("cluster", "app", "user", "host", "scheduler", "account", "unique_id")
        return {name: getattr(self, name) for name in same} | {
            "job": self.key,
            "workload": self.workload(ranks, nodes),
            "params": msgspec.json.encode(self.params).decode(),
            "ranks": ranks,
            "nodes": nodes,
            "started_at": started_at,
        }

    def named_by(self, program: str) -> Job:
        """This job with a guessed name replaced by that of rank 0's program or script, unless it is an interpreter."""
        if not self.guessed or not program or _INTERPRETER.fullmatch(Path(program).name):
            return self
        return msgspec.structs.replace(self, app=clean(_program_name(program), self.app))


def account() -> str:
    """The name of this process's account, else its number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for this uid
        return str(os.getuid())


def clean(text: str, fallback: str, limit: int = 40) -> str:
    """`text` with invalid characters replaced by "-", as an identifier; the fallback if nothing is left."""
    return _FOREIGN.sub("-", text).strip("-")[:limit] or fallback


def from_environment(
    environment: Mapping[str, str],
    *,
    command: Sequence[str],
    user: str,
    host: str,
    unique: str = "unknown",
    app: str | None = None,
    params: Mapping[str, str] | None = None,
    step: str = "",
    restart: int | None = None,
) -> Job:
    """The job that this environment describes: the batch system's, or outside of one a job of its own.

    unique: distinguishes runs with the same environment, such as two commands of one batch script. app: None to guess
    it from the command. step, restart: from a hook, if any. Raises JobError for an application or a parameter that
    is no identifier.
    """
    if app is not None and not APP.fullmatch(app):
        raise JobError(f"app is {app!r}, expected 1-{MAX_APP} characters from A-Z a-z 0-9 _ . : @ / + -")
    found = allocation(environment)
    # Two commands of one batch script, and two programs of one step, have the same id.
    own_step = f"{found.step}-{unique}"[:46].lstrip("-") if found.id else "0"
    return Job(
        cluster=clean(environment.get("BAROGRAPH_CLUSTER") or found.cluster, "local", 24),
        id=clean(found.id, unique),
        restart=found.restart if restart is None else restart,
        step=step or own_step,
        user=clean(user, "unknown", 32),
        host=clean(host, "unknown", 64),
        app=app or guess_app(command),
        params=dict(params or {}),
        guessed=not app,
        scheduler=found.scheduler,
        nodes=found.nodes,
        account=clean(found.account, "", 64),
        unique_id=clean(found.unique_id, "", 64),
    )


def guess_app(command: Sequence[str]) -> str:
    """The application's name, guessed from its command line: the program after launchers, options and interpreters.

    The value of an option may be mistaken for the program: `Job.named_by` and `--app` correct that.
    """
    words = [word for word in command if not word.startswith("-") and "=" not in word]
    for position, word in enumerate(words):
        name = Path(word).name
        if name.partition(".")[0] in LAUNCHERS or name.isdecimal():
            continue
        if _INTERPRETER.fullmatch(name) and position + 1 < len(words):
            continue
        return clean(_program_name(word), "unknown")
    return clean(Path(command[0]).name, "unknown") if command else "unknown"


def _program_name(path: str) -> str:
    file = Path(path)
    return file.stem if file.suffix in (".py", ".sh") else file.name


def parse_params(pairs: Sequence[str]) -> dict[str, str]:
    """Words `name=value` as a dict. Raises JobError for a word without = or a name that is no identifier."""
    params: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not IDENTIFIER.fullmatch(name):
            raise JobError(f"--param is {shlex.quote(pair)}, expected NAME=VALUE, such as x=4")
        params[name] = value
    return params
