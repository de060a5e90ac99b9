"""Orphans: spools of runs whose launcher has ended, which the user's next sidecar on the node delivers."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.shards import shard_of_spool
from barograph_agent.deliver.spool import SpoolError
from barograph_agent.settings import places
from barograph_agent.sidecar.plan import PLAN, RunPlan, load_plan, myself, save
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM, System

MAX_ADOPTED: Final = 16
"""Orphans that are delivered at the same time."""
_OF_A_SPOOL: Final = re.compile(r"spool\.sqlite(-\w+)?|lock|(end|report|token)\.json(\.part)?|sidecar\.log")
"""Files of a spool beside its plan, which is the first that is created."""


def _spools(root: Path, disk: Disk) -> list[Path]:
    """What is in a directory of spools; nothing where it is missing or another user's, who would say what is sent."""
    with contextlib.suppress(OSError):
        disk.check_own(root)
        return [root / name for name in disk.names(root)]
    return []


def plans(root: Path, system: System = SYSTEM) -> dict[Path, RunPlan]:
    """Plans of runs under `root`, by spool directory."""
    found = {}
    for directory in _spools(root, system.disk):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found[directory] = load_plan(directory, system.disk)
    return found


def orphans(root: Path, system: System = SYSTEM) -> dict[Path, RunPlan]:
    """Plans of runs under `root` whose launcher has ended, by spool directory."""
    return {at: plan for at, plan in plans(root, system).items() if not plan.launcher_lives(system.processes)}


def adopt(directory: Path, plan: RunPlan, system: System, **changes: str) -> WatchedRun:
    """Continue the run of a sidecar that has ended, as its launcher. changes: of the plan.

    Raises SpoolError while that sidecar lives, and OSError.
    """
    launcher, born = myself(system.processes)
    own = msgspec.structs.replace(plan, launcher=launcher, launcher_born=born, **changes)
    run = WatchedRun(directory, own, system=system)
    try:
        save(directory, PLAN, own, system.disk)
    except OSError:
        run.close()
        raise
    return run


class Orphans:
    """The orphans under a directory that no other process owns, delivered a few at a time.

    A link has several descriptors, of which a user may have a thousand, and a node hundreds of orphans.
    """

    def __init__(self, root: Path, collectors: str, system: System = SYSTEM) -> None:
        """collectors: addresses with commas between."""
        self.runs: dict[Path, WatchedRun] = {}
        """Those that are being delivered, by spool directory."""
        for directory in _spools(root, system.disk):
            with contextlib.suppress(OSError):
                _delete_rest(directory, system.disk)
        self.unusable: dict[str, Exception] = {}
        """Why a spool cannot be opened, by job: a damaged database, a full disk, another owner."""
        self._waiting: dict[str, deque[tuple[Path, RunPlan]]] = {}
        """By collector: one that does not answer holds up those of no other."""
        known = places.endpoints(collectors)
        for directory, found in orphans(root, system).items():
            plan = msgspec.structs.replace(found, endpoint=shard_of_spool(found.endpoint, known))
            self._waiting.setdefault(plan.endpoint, deque()).append((directory, plan))
        self._most = max(MAX_ADOPTED // max(len(self._waiting), 1), 1)
        self._system = system
        self.adopt()

    @property
    def left(self) -> int:
        """Number of orphans that wait for others to be delivered."""
        return sum(map(len, self._waiting.values()))

    def adopt(self) -> None:
        """Begin with the next orphans, up to MAX_ADOPTED at once, as many of each collector."""
        for endpoint, waiting in self._waiting.items():
            busy = sum(run.plan.endpoint == endpoint for run in self.runs.values())
            while waiting and busy < self._most:
                directory, plan = waiting.popleft()
                try:
                    self.runs[directory] = WatchedRun(directory, plan, system=self._system)
                    busy += 1
                except (SpoolError, OSError, msgspec.DecodeError) as error:
                    self.unusable[plan.job.key] = error


def _delete_rest(directory: Path, disk: Disk) -> None:
    """Delete what is left of a spool whose deletion the node has not survived: all but its plan, which is first.

    Nothing is touched in a directory that holds anything else, or only a lock, which might be of another program.
    """
    disk.check_own(directory)
    names = disk.names(directory)
    if set(names) - {"lock"} and all(_OF_A_SPOOL.fullmatch(name) for name in names):
        for name in names:
            disk.unlink(directory / name, missing_ok=True)
        disk.remove_directory(directory)
