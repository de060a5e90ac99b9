"""The allocation of a process, from the environment of its batch system: Slurm, PBS or Flux."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barograph_agent.system.disk import DISK

MAX_HOSTS_BYTES: Final = 16 * 2**20
_MAX_NODES: Final = 10**6
_MAX_RESTARTS: Final = 99_999


class Allocation(NamedTuple):
    """Values of the batch system, not cleaned; empty if not provided."""

    scheduler: str
    cluster: str = ""
    id: str = ""
    restart: int = 0
    step: str = ""
    nodes: int = 1
    account: str = ""
    unique_id: str = ""
    """An id that is never reused, if the system has one: Slurm's SLUID."""


def allocation(environment: Mapping[str, str]) -> Allocation:
    """The allocation that this environment describes.

    The innermost system takes precedence: a Flux instance may run inside a job of Slurm or PBS, and its tasks inherit
    the variables of that job.
    """
    if environment.get("FLUX_JOB_ID"):
        return _flux(environment)
    if environment.get("SLURM_JOB_ID"):
        return _slurm(environment)
    if environment.get("PBS_JOBID"):
        return _pbs(environment)
    return Allocation("none", cluster=environment.get("SLURM_CLUSTER_NAME", ""))


def _slurm(environment: Mapping[str, str]) -> Allocation:
    job = environment.get("SLURM_JOB_ID", "")
    if array := environment.get("SLURM_ARRAY_JOB_ID"):
        job = f"{array}_{environment.get('SLURM_ARRAY_TASK_ID', '')}"
    # A batch script has no step, or a reserved number of at least 0xFFFFFFF0.
    step = _number(environment.get("SLURM_STEP_ID", ""), -1)
    # Prolog and Epilog have the second variable.
    restarts = environment.get("SLURM_RESTART_COUNT") or environment.get("SLURM_JOB_RESTART_COUNT", "")
    return Allocation(
        "slurm",
        cluster=environment.get("SLURM_CLUSTER_NAME", ""),
        id=job,
        restart=min(_number(restarts, 0), _MAX_RESTARTS),
        step=str(step) if 0 <= step < 0xFFFFFFF0 else "",
        nodes=_nodes(environment.get("SLURM_JOB_NUM_NODES", "")),
        account=environment.get("SLURM_JOB_ACCOUNT", ""),
        unique_id=environment.get("SLURM_JOB_SLUID", ""),
    )


def _pbs(environment: Mapping[str, str]) -> Allocation:
    # 4711.server, or 4711[2].server in an array: ids repeat across servers.
    job, _, server = environment.get("PBS_JOBID", "").partition(".")
    return Allocation(
        "pbs",
        cluster=server.partition(".")[0],
        id=job.replace("[", "_").replace("]", ""),
        nodes=_hosts(environment.get("PBS_NODEFILE", "")),
        account=environment.get("PBS_ACCOUNT", ""),
    )


def _flux(environment: Mapping[str, str]) -> Allocation:
    # F58: a non-ASCII letter, or f, followed by a number in base 58.
    job = environment.get("FLUX_JOB_ID", "").replace("\u0192", "f")
    return Allocation("flux", id=job, nodes=_nodes(environment.get("FLUX_JOB_NNODES", "")))


def _number(text: str, fallback: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else fallback


def _nodes(text: str) -> int:
    return min(max(_number(text, 1), 1), _MAX_NODES)


def _hosts(path: str) -> int:
    """Number of distinct lines of a node file, which lists a host once per process slot."""
    try:
        # The path is the user's, whose process this may not be.
        return max(len(set(DISK.read(Path(path), MAX_HOSTS_BYTES).split())), 1) if path else 1
    except OSError:
        return 1
