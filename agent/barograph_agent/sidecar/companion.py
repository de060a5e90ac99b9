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

import msgspec

from barograph_agent.deliver.spool import SpoolError
from barograph_agent.job.identity import clean
from barograph_agent.settings import places
from barograph_agent.sidecar.main import adopt, orphans, sidecar_of
from barograph_agent.sidecar.plan import RUN_VARIABLE, Earlier, RunPlan, decode, myself, save_begun
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.processes import raise_descriptor_limit
from barograph_agent.system.system import SYSTEM, System


def begin(rings: Path, given: RunPlan, spools: Path, host: str, system: System = SYSTEM) -> WatchedRun:
    """The run on this node: that of a sidecar which has died, or a new one.

    given: the launcher's plan. Raises OSError and SpoolError.
    """
    launcher, born = myself(system.processes)
    for directory, plan in orphans(spools, system).items():
        if plan.ring_directory == str(rings) and plan.is_companion:
            return adopt(directory, plan, system, endpoint=given.endpoint)
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
        earlier=Earlier.load(rings, system.disk),
        launcher=launcher,
        launcher_born=born,
    )
    directory = spools / f"{given.job.key.replace('/', '-')}-{unique}"
    system.disk.make_directory(directory, exist_ok=False)
    save_begun(directory, plan, system.disk)
    return WatchedRun(directory, plan, system=system)


def main(arguments: list[str]) -> int:
    """Watch the ranks whose rings are in the given directory; 1 if the next program has rings there already."""
    rings = Path(arguments[0])
    raise_descriptor_limit()
    with contextlib.suppress(OSError):  # a rank that is bound to a core has passed that on
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        plan = decode(os.environ.get(RUN_VARIABLE, ""))
        spools = places.private_directory(places.spool_root(os.environ))
        run = begin(rings, plan, spools, clean(platform.node(), "unknown", 64))
        log = os.open(run.directory / "sidecar.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, sys.stderr.fileno())
    except (msgspec.DecodeError, OSError, SpoolError):
        # Nobody would read the rings. Ranks go on writing to files without a name.
        shutil.rmtree(rings, ignore_errors=True)
        return 0
    sidecar = sidecar_of(run)
    signal.signal(signal.SIGTERM, lambda number, frame: sidecar.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sidecar.run()
    return int(bool(run.left))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
