"""The sidecar of `barograph run` on a node where the launcher is not: started there by the first rank (the shim's
`companion.c`).

`python -m barograph_agent.sidecar.companion RINGS`: the directory of rings, as the launcher has named it.
BAROGRAPH_RUN has the launcher's plan. It ends when all ranks on its node have ended and everything is delivered, or the
time for that has passed: what is left is in the spool, and the user's next sidecar on the node delivers it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.spool import SpoolError
from barograph_agent.job.identity import clean
from barograph_agent.settings import places
from barograph_agent.sidecar import earlier
from barograph_agent.sidecar.main import Sidecar, orphans
from barograph_agent.sidecar.plan import PLAN, RUN_VARIABLE, RunPlan, decode, load_plan, myself, save
from barograph_agent.sidecar.program import Program
from barograph_agent.system.system import SYSTEM, System

LINGER_SECONDS: Final = 1.0
"""How long further ranks may follow after the last one has ended; the next program has a companion of its own, which
continues the count of worlds."""
MAX_INIT_SECONDS: Final = 3600.0
"""Limit on the time until the first rank records."""


class Companion(Sidecar[Program]):
    """Watches the ranks of one run on this node until they have ended."""

    def __init__(self, directory: Path, plan: RunPlan, system: System = SYSTEM) -> None:
        """directory: of the spool, which has the plan."""
        super().__init__(directory.parent, plan.collectors or plan.endpoint, plan.drain_seconds, system=system)
        self._program = Program(directory, plan, system)
        self.programs[directory] = self._program
        self._began_at = system.clock.monotonic()
        self._gone_at = float("inf")

    def find(self) -> None:
        """Add new rings; end the program once all ranks have ended and no other has followed."""
        program, now = self._program, self._system.clock.monotonic()
        if program.has_ended:
            return
        with contextlib.suppress(OSError):
            count = program.count
            program.find()
            if program.count > count or not self._is_gone(now):
                self._gone_at = float("inf")
                return
            self._gone_at = min(self._gone_at, now)
            if now - self._gone_at >= LINGER_SECONDS:
                program.end(self._system.clock.now())

    def _is_gone(self, now: float) -> bool:
        if self._program.count:
            return self._program.is_gone
        return now - self._began_at > MAX_INIT_SECONDS or not self._program.plan.command_lives(self._system.processes)


def begin(rings: Path, given: RunPlan, spools: Path, host: str, system: System = SYSTEM) -> Path:
    """The spool directory of a run on this node: that of an earlier sidecar which has died, or a new one.

    given: the launcher's plan. Raises OSError.
    """
    launcher, born = myself(system.processes)
    own = {"launcher": launcher, "launcher_born": born, "endpoint": given.endpoint}
    for directory, plan in orphans(spools, system).items():
        if plan.ring_directory == str(rings) and plan.is_companion:
            save(directory, PLAN, msgspec.structs.replace(plan, **own), system.disk)
            return directory
    unique = f"{host}-{secrets.token_hex(4)}"
    plan = msgspec.structs.replace(
        given,
        job=msgspec.structs.replace(given.job, host=host),
        stream=f"{given.job.key}/{unique}",
        ring_directory=str(rings),
        step_directory=str(rings),
        feature_directory=given.feature_directory if given.feature_directory != given.ring_directory else "",
        is_companion=True,
        has_companions=False,
        earlier=earlier.load(rings, system.disk),
        **own,
    )
    directory = spools / f"{given.job.key.replace('/', '-')}-{unique}"
    system.disk.make_directory(directory, exist_ok=False)
    save(directory, PLAN, plan, system.disk)
    return directory


def _spread_out() -> None:
    """Run on any core of the node: a rank that is bound to one has passed that on."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def main(arguments: list[str]) -> int:
    """Watch the run whose rings are in the given directory."""
    rings = Path(arguments[0])
    _spread_out()
    try:
        plan = decode(os.environ.get(RUN_VARIABLE, ""))
        spools = places.private_directory(places.spool_root(os.environ))
        directory = begin(rings, plan, spools, clean(platform.node(), "unknown", 64))
        log = os.open(directory / "sidecar.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, sys.stderr.fileno())
        companion = Companion(directory, load_plan(directory))
    except (msgspec.DecodeError, OSError, SpoolError):
        # Nobody would read the rings. Ranks go on writing to files without a name.
        shutil.rmtree(rings, ignore_errors=True)
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: companion.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    companion.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
