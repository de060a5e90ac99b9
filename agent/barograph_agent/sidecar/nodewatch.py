"""The sidecar of one batch job on one node, started by hooks of the batch system.

`python -m barograph_agent.sidecar.nodewatch RINGS SPOOL ACTIVE`: the job's directory of rings, with a directory for
each step; the user's directory of spools; a file that exists as long as the job runs. The scheduler's variables for
the job on this node are in the environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.spool import SpoolError
from barograph_agent.job.identity import clean
from barograph_agent.reduce.blocks import ROWS_PER_SECOND
from barograph_agent.settings import places
from barograph_agent.sidecar.main import Sidecar, orphans
from barograph_agent.sidecar.plan import PLAN, load_plan, myself, save
from barograph_agent.sidecar.program import Program
from barograph_agent.sidecar.step import Step, StepOptions

DRAIN_SECONDS: Final = 10.0
"""How long after the job's end delivery is tried; the next sidecar of this user delivers what is left."""
SPOOL_BYTES: Final = 256 * 2**20
"""Of each program."""


class NodeWatch(Sidecar[Program]):
    """Watches the steps of one job on this node until the job has ended."""

    def __init__(self, rings: Path, active: Path, settings: StepOptions) -> None:
        super().__init__(settings.spool, settings.endpoint, settings.drain_seconds)
        self._rings = rings
        self._active = active
        self._settings = settings
        self._steps: dict[str, Step] = {}
        self._has_ended = False

    @property
    def is_over(self) -> bool:
        """True once the job had ended before programs were last looked for."""
        return self._has_ended

    def run(self) -> None:
        """Go on with the programs of a sidecar of this job that has died; then as any sidecar."""
        launcher, born = myself()
        mine = {"launcher": launcher, "launcher_born": born, "endpoint": self._settings.endpoint}
        for directory, plan in orphans(self._settings.spool).items():
            if Path(plan.step_directory).parent == self._rings:
                with contextlib.suppress(OSError, SpoolError):
                    save(directory, PLAN, msgspec.structs.replace(plan, **mine))
                    self.programs[Path(plan.ring_directory)] = Program(directory, load_plan(directory))
        super().run()

    def find(self) -> None:
        """Sort new rings into programs, and end programs whose processes are gone."""
        self._has_ended = not self._active.exists()
        gone = [(one, one.count) for one in self.programs.values() if not one.has_ended and one.is_gone]
        # A job may have thousands of steps, and this is done five times a second: names alone.
        names = os.listdir(self._rings) if self._rings.is_dir() else []  # noqa: PTH208
        for name in sorted(set(names) - self._steps.keys()):
            if (self._rings / name).is_dir():
                self._steps[name] = Step(self._rings / name, os.environ, self._settings)
        for step in self._steps.values():
            with contextlib.suppress(OSError, SpoolError):
                step.find(self.programs)
        for program, count in gone:
            # A ring found only now, after all other processes were gone, may be one more rank.
            if program.count == count:
                with contextlib.suppress(OSError):
                    program.end(time.time())

    def leave(self) -> None:
        """Release programs, and delete the job's directory of rings where nothing needs it any more."""
        running = any(not program.ended for program in self.programs.values())
        super().leave()
        # The same job may have begun again on this node.
        if not (running or self._active.exists()):
            shutil.rmtree(self._rings, ignore_errors=True)
            # Links in the names of other nodes' directories, made by the hook where a launcher passed those on.
            for path in self._rings.parent.iterdir():
                if path.is_symlink() and path.readlink() == Path(self._rings.name):
                    path.unlink(missing_ok=True)


def _lock(path: Path) -> int:
    """Wait until no other sidecar of this job runs. Returns the locked descriptor."""
    while True:
        places.private_directory(path.parent)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        # The process that held the lock may have deleted the file.
        with contextlib.suppress(OSError):
            if path.stat().st_ino == os.fstat(file).st_ino:
                return file
        os.close(file)


def _user() -> str:
    try:
        return clean(pwd.getpwuid(os.getuid()).pw_name, "unknown", 32)
    except KeyError:
        return str(os.getuid())


def main(arguments: list[str]) -> int:
    """Watch the job whose rings are in the given directory until it has ended."""
    rings, spool, active = map(Path, arguments)
    places.private_directory(spool)
    log = spool / f"{rings.name}.log"
    with contextlib.suppress(OSError):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), sys.stderr.fileno())
    file = _lock(rings / "lock")
    settings = StepOptions(
        spool=spool,
        endpoint=places.check_endpoint(places.endpoint(os.environ)),
        user=_user(),
        node=clean(rings.name.rpartition("@")[2], "unknown", 64),
        drain_seconds=DRAIN_SECONDS,
        spool_bytes=SPOOL_BYTES,
        rows_per_second=ROWS_PER_SECOND,
    )
    watch = NodeWatch(rings, active, settings)
    signal.signal(signal.SIGTERM, lambda number, frame: watch.stop())
    watch.run()
    os.close(file)
    if log.exists() and not log.stat().st_size:
        log.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
