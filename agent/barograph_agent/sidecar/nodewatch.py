"""The sidecar of one batch job on one node, where hooks of the batch system start it and no launcher of ours.

`python -m barograph_agent.sidecar.nodewatch RINGS SPOOL ACTIVE`: the job's directory of rings, with a directory for each step;
the user's spools; the file that is there as long as the job is. What the scheduler says of the job on this node is in
the environment.
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
from barograph_agent.sidecar.main import POLL_SECONDS, adopt, orphans
from barograph_agent.sidecar.plan import PLAN, load_plan, myself, save
from barograph_agent.sidecar.program import Program
from barograph_agent.sidecar.step import Step, StepOptions
from barograph_agent.sidecar.watch import Watch

DRAIN_SECONDS: Final = 10.0
"""How long after the job's end it tries to deliver; the next sidecar of this user goes on with what is left."""
SPOOL_BYTES: Final = 256 * 2**20
"""Of each program."""


class NodeWatch:
    """Watches the steps of one job on this node until the job has ended."""

    def __init__(self, rings: Path, active: Path, settings: StepOptions) -> None:
        self._rings = rings
        self._active = active
        self._settings = settings
        self._steps: dict[str, Step] = {}
        self._programs: dict[Path, Program] = {}
        self._adopted: list[Watch] = []
        self._has_looked = False
        self._stopping = False

    def stop(self) -> None:
        """Finish soon: called from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Step until the job has ended and everything is delivered, or the time for that is over."""
        self._resume()
        deadline = float("inf")
        while not self._stopping:
            ended = not self._active.exists()
            self.step()
            if ended and deadline == float("inf"):
                deadline = time.monotonic() + DRAIN_SECONDS
            if (ended and not self._programs and not self._adopted) or time.monotonic() > deadline:
                break
            self._deliver(0.02 if ended else POLL_SECONDS)
        self._leave()

    def step(self) -> None:
        """Find what is new, end what is over, read and deliver. A full disk does not raise: it is tried again."""
        over = {path for path, program in self._programs.items() if not program.has_ended and program.is_over}
        before = {path: program.count for path, program in self._programs.items()}
        self._find()
        for path, program in list(self._programs.items()):
            # Whoever came while the others had gone may be one of them.
            if path in over and program.count == before[path]:
                with contextlib.suppress(OSError):
                    program.end(time.time())
            program.step()
            # A short program may be delivered at the first sight of the collector.
            if program.watch.link.connected and not self._has_looked:
                self._has_looked = True
                self._adopted = adopt(self._settings.spool, Path(), self._settings.endpoint)
            if program.watch.delivered:
                program.forget()
                del self._programs[path]
        self._serve_adopted()

    def _deliver(self, seconds: float) -> None:
        """Wait so long, and hear meanwhile from the collector what has become of programs that ended."""
        until = time.monotonic() + seconds
        ended = [program.watch for program in self._programs.values() if program.watch.ended]
        while (left := until - time.monotonic()) > 0:
            for watch in ended:
                watch.link.pump()
            if any(watch.delivered for watch in ended):
                return
            delivering = any(watch.link.connected for watch in ended)
            time.sleep(min(0.02, left) if delivering else left)

    def _find(self) -> None:
        # A job may have thousands of steps, and this is done five times a second: names alone.
        names = os.listdir(self._rings) if self._rings.is_dir() else []  # noqa: PTH208
        for name in sorted(set(names) - self._steps.keys()):
            if (self._rings / name).is_dir():
                self._steps[name] = Step(self._rings / name, os.environ, self._settings)
        for step in self._steps.values():
            with contextlib.suppress(OSError, SpoolError):
                step.find(self._programs)

    def _resume(self) -> None:
        """Go on with the programs of a sidecar of this job that has died."""
        launcher, born = myself()
        for directory in orphans(self._settings.spool, Path()):
            plan = load_plan(directory)
            if Path(plan.step_directory).parent != self._rings:
                continue
            endpoint = self._settings.endpoint
            plan = msgspec.structs.replace(plan, launcher=launcher, launcher_born=born, endpoint=endpoint)
            with contextlib.suppress(OSError, SpoolError):
                save(directory, PLAN, plan)
                self._programs[Path(plan.ring_directory)] = Program(Watch(directory, plan), directory)

    def _serve_adopted(self) -> None:
        for watch in list(self._adopted):
            watch.step()
            watch.link.pump()
            if watch.delivered:
                watch.forget()
                self._adopted.remove(watch)

    def _leave(self) -> None:
        running = any(not program.watch.ended for program in self._programs.values())
        for program in self._programs.values():
            program.close()
        for watch in self._adopted:
            watch.close()
        # The same job may have begun again on this node.
        if not (running or self._active.exists()):
            shutil.rmtree(self._rings, ignore_errors=True)
            # Names of other nodes' directories, made where a launcher passed them on.
            for path in self._rings.parent.iterdir():
                if path.is_symlink() and path.readlink() == Path(self._rings.name):
                    path.unlink(missing_ok=True)


def _lock(path: Path) -> int:
    """Wait until no other sidecar of this job is left."""
    while True:
        places.private_directory(path.parent)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        # Whoever had it may have deleted it.
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
    """Watch the job whose rings are in the given directory."""
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
