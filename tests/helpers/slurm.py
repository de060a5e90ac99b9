"""A real Slurm on this machine: munged, slurmctld and two virtual nodes, with our hooks installed. Needs root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from barograph_agent import shim
from helpers.hooks import unhurried
from helpers.log import DEADLINE_SECONDS
from helpers.mpi import OPENMPI_ENVIRONMENT, REPOSITORY, find, missing
from helpers.munged import munged
from helpers.service import processes
from helpers.up import free_ports

USER = "nobody"
"""A user of every system who is not root."""
NODES = ("n1", "n2")
SETTLED_SECONDS = 180.0
_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/slurmd/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=1
MessageTimeout=60
BatchStartTimeout=120
UnkillableStepTimeout=300
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
Prolog={hooks}/prolog
Epilog={hooks}/epilog
TaskProlog={hooks}/task-prolog
PrologFlags=Alloc
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=quiet Nodes=ALL MaxTime=INFINITE State=UP
"""


def configure(root: Path, controller: str, munge: str | Path, hooks: Path, *lines: str) -> Path:
    """Write slurm.conf, and make the directories that it names. lines: of the nodes, and others."""
    for directory in ("state", "log", "slurmd"):
        (root / directory).mkdir()
    (root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    path = root / "slurm.conf"
    text = _CONFIGURATION.format(root=root, controller=controller, munge=munge, hooks=hooks)
    path.write_text(text + "".join(f"{line}\n" for line in lines))
    return path


class Cluster:
    """Two nodes with room for four tasks each. Jobs run in `work`, which everybody may write."""

    def __init__(self, root: Path, munge: Path) -> None:
        self.root = root
        self.python = interpreter(root)
        self.munge = munge
        self.etc, self.work, self.rings, self.spool = (root / name for name in ("etc", "work", "rings", "spool"))
        self.active = root / "active"
        self.configuration = root / "slurm.conf"
        for path in (self.work, self.rings, self.spool):
            path.mkdir()
            path.chmod(0o1777)
        for name in ("hooks", "slurm"):
            shutil.copytree(REPOSITORY / "deploy" / name, self.etc / name)
        unhurried(self.etc / "hooks/bounded")
        self.configure()

    def configure(self, **settings: str | Path) -> None:
        """Write hooks.conf anew, with these besides the places of this cluster."""
        values: dict[str, str | Path] = {
            "python": self.python,
            "shim": shim.library(),
            "collector": "tcp://127.0.0.1:1",
            "munge_socket": self.munge,
            "rings": self.rings,
            "spool": self.spool,
            "active": self.active,
        }
        lines = [f"{name}={value}\n" for name, value in (values | settings).items()]
        (self.etc / "hooks.conf").write_text("".join(lines))

    def run(self, *command: str | Path, user: str = "root", **variables: str) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's, as a user whose environment holds nothing else."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "SLURM_CONF": str(self.configuration)} | variables
        return subprocess.run(
            ["/usr/sbin/runuser", "-u", user, "--", *map(str, command)],
            cwd=self.work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def batch(self, script: str, *options: str, user: str = USER, wait: bool = True) -> str:
        """Submit a script, whose output goes to `ID.out`, or `ID_TASK.out` of an array; returns the job's id."""
        path = self.work / f"{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        words = ["sbatch", "--parsable", "--output=%j.out", *options, *(["--wait"] if wait else []), path]
        done = self.run(*words, user=user, **OPENMPI_ENVIRONMENT)
        assert not done.stderr, done.stderr
        return done.stdout.strip()

    def output(self, job: str) -> str:
        """What a batch job has printed."""
        return (self.work / f"{job}.out").read_text()

    def sidecars(self) -> list[int]:
        """Processes that watch jobs of this cluster."""
        name, active = b"barograph_agent.sidecar.nodewatch", os.fsencode(self.active)
        return processes(lambda words: name in words and b"-c" not in words and active in words[-2])

    def settle(self) -> None:
        """Wait until no job is left, in no node's view, and no sidecar."""
        self.wait(lambda: not self.run("squeue", "--noheader").stdout, "no job is left")
        self.wait(lambda: not (self.active.exists() and list(self.active.iterdir())), "epilogs have run")
        self.wait(lambda: not self.sidecars(), "sidecars have ended")
        self.wait(self.is_up, "all nodes are idle")

    def is_up(self) -> bool:
        """True where all nodes wait for jobs."""
        return (
            self.run("sinfo", "--noheader", "--Node", "--partition=all", "--format=%T").stdout.split() == ["idle"] * 2
        )

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SETTLED_SECONDS
        while not condition():
            logs = "".join(path.read_text()[-2000:] for path in (self.root / "log").glob("*.log"))
            assert time.monotonic() < deadline, f"not within {SETTLED_SECONDS:g} s: {what}\n{logs}"
            time.sleep(0.1)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start it; skips the test where that cannot be done here, fails it in CI."""
    programs = [shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("slurmctld", "slurmd", "srun")]
    if not all(programs) or os.getuid() != 0:
        missing("Slurm: no slurmctld, slurmd and srun, or not root (Debian package slurm-wlm)")
    find("debian-mpich")
    root = Path(tempfile.mkdtemp(prefix="barograph-slurm-", dir="/tmp"))
    root.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        munge = Path(stack.enter_context(munged(root / "munge")))
        munge.parent.chmod(0o755)
        made = Cluster(root, munge)
        port, host = free_ports(3), socket.gethostname().partition(".")[0]
        where = f"NodeHostname={host} NodeAddr=127.0.0.1 Port=[{port + 1}-{port + 2}]"
        nodes = f"NodeName=n[1-2] {where} CPUs=4 RealMemory=2000"
        configure(root, f"{host}(127.0.0.1)", munge, made.etc / "slurm", f"SlurmctldPort={port}", nodes)
        environment = {"PATH": "/usr/sbin:/usr/bin", "SLURM_CONF": str(made.configuration)}
        commands = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in NODES)]
        for command in commands:
            stack.callback(_end, _start(command, environment, root))
        made.wait(made.is_up, "all nodes are idle")
        yield made


def interpreter(root: Path) -> Path:
    """A Python with Barograph that USER may run: this one, or the system's where this one is closed to others."""
    wrapper = root / "python"
    path = os.pathsep.join([sysconfig.get_path("purelib"), *(str(REPOSITORY / name) for name in ("agent", "deploy"))])
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec /usr/bin/python3.{sys.version_info.minor} "$@"\n')
    wrapper.chmod(0o755)
    for python in (Path(sys.executable), wrapper):
        command = [
            "/usr/sbin/runuser",
            "-u",
            USER,
            "--",
            python,
            "-P",
            "-c",
            "import barograph_agent.sidecar.nodewatch",
        ]
        if subprocess.run(command, cwd="/", capture_output=True, check=False).returncode == 0:
            return python
    return missing(f"Slurm: {USER} can run neither {sys.executable} nor {wrapper}, or not read {REPOSITORY}")


def _start(command: Sequence[str], environment: dict[str, str], root: Path) -> subprocess.Popen[bytes]:
    with (root / "log" / f"{command[-1]}.out").open("ab") as log:
        return subprocess.Popen(
            [f"/usr/sbin/{command[0]}", *command[1:]],
            env=environment,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
