"""Slurm on the cluster of namespaces: slurmctld on the head node, slurmd on the others, hooks as in the docs."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from helpers.cluster import ENDPOINT, HEAD, Cluster, slow, write_control
from helpers.log import wait_until
from helpers.mpi import REPOSITORY, missing
from helpers.slurm import USER, configure, interpreter

GUIDE: Final = REPOSITORY / "docs/operator/slurm.md"
_WATCHED: Final = """\
#!/bin/sh
# watched PROGRAM... - a rank that leaves its core to others while it waits.
LD_PRELOAD="$LD_PRELOAD {root}/patient.so"
exec "$@"
"""


class Batch:
    """Slurm on a cluster. Jobs of USER run in `work`, which everybody may write."""

    def __init__(self, made: Cluster) -> None:
        self.cluster = made
        self.work, self.root = made.root / "work", made.root / "slurm"
        self.work.mkdir()
        self.work.chmod(0o1777)
        self.root.mkdir()
        self.control = made.root / "control"
        self.watched = made.root / "watched"
        self.watched.write_text(_WATCHED.format(root=made.root))
        self.watched.chmod(0o755)
        python = interpreter(made.root / "etc")
        nodes = [f"NodeName={name} NodeAddr={made.address(name)} CPUs=4 RealMemory=500" for name in made.names]
        hooks = Path("/etc/barograph/slurm")
        self.configuration = configure(self.root, f"head({HEAD})", made.munge, hooks, *nodes)
        for name in made.names:
            self._install(name, python)
        self._processes = [self._start("head", "slurmctld", "-D")]
        self._processes += [self._start(name, "slurmd", "-D", "-N", name) for name in made.names]
        wait_until(self._is_up, "all nodes are idle", every=0.5)

    def _install(self, name: str, python: Path) -> None:
        """Install the hooks on a node by the commands of the guide, with this environment as /opt/barograph."""
        node = self.cluster.nodes[name]
        node.run("mount", "-t", "tmpfs", "tmpfs", "/opt")
        node.run("mkdir", "-p", "/opt/barograph/bin")
        launcher = f'#!/bin/sh\nexec {python} "$@"\n'
        node.run("/bin/sh", "-c", 'printf %s "$1" > $2; chmod 755 $2', "sh", launcher, "/opt/barograph/bin/python")
        (commands,) = re.findall(r"```sh\n(mkdir -p /etc/barograph\n.*?)```", GUIDE.read_text(), re.DOTALL)
        node.run("/bin/sh", "-euc", f"cd {REPOSITORY}\n{commands}")
        node.run("install", "-m", "644", self.cluster.root / "keys/nodes.key", "/etc/barograph")
        settings = f"collector={ENDPOINT}\nkey=/etc/barograph/nodes.key\nmunge_socket={self.cluster.munge}\n"
        node.run("/bin/sh", "-c", 'printf %s "$1" > /etc/barograph/hooks.conf', "sh", settings)

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(self.configuration)}
        with (self.root / "log" / f"{name}.out").open("ab") as log:
            return subprocess.Popen(self.cluster.nodes[name].command(*words), env=environment, stdout=log, stderr=log)

    def _is_up(self) -> bool:
        for process in self._processes:
            logs = "".join(path.read_text()[-2000:] for path in (self.root / "log").iterdir())
            assert process.poll() is None, logs
        with contextlib.suppress(AssertionError):
            found = self.run("sinfo", "--noheader", "--Node", "--partition=all", "--format=%T").split()
            return found == ["idle"] * len(self.cluster.names)
        return False

    def run(self, *words: str | Path, user: str = "root", **variables: str) -> str:
        """A command of Slurm's on the head node, as a user; returns what it prints."""
        command = ["/usr/sbin/runuser", "-u", user, "--", "env", f"--chdir={self.work}", *words]
        return self.cluster.nodes["head"].run(*command, SLURM_CONF=str(self.configuration), HOME="/", **variables)

    def submit(self, script: str, ranks: int, *options: str) -> str:
        """Submit a script with a control file for the ranks of `programs/steps.c`; returns the job's id."""
        write_control(self.control, ranks)
        path = self.work / f"{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        variables = {"STEPS_CONTROL": str(self.control), "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
        words = ["sbatch", "--parsable", "--output=%j.out", f"--ntasks={ranks}", *options, str(path)]
        return self.run(*words, user=USER, **variables).strip()

    def slow(self, rank: int, factor: float) -> float:
        """Multiply the work of a rank from now on; returns the time, Unix seconds."""
        return slow(self.control, [rank], factor)

    def output(self, job: str) -> str:
        """What a job has printed so far."""
        path = self.work / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def end(self, job: str) -> str:
        """Wait until a job has ended and its nodes are idle; returns what it has printed."""
        wait_until(lambda: job not in self.run("squeue", "--noheader", "--format=%A").split(), "it ends", every=0.5)
        wait_until(self._is_up, f"all nodes are idle\n{self.output(job)}", every=0.5)
        return self.output(job)

    def close(self) -> None:
        """End all daemons."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@contextmanager
def batch(made: Cluster) -> Iterator[Batch]:
    """Start Slurm on a cluster; skips the test where it is not installed, fails it in CI."""
    if not all(shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("slurmctld", "slurmd", "srun")):
        missing("Slurm: no slurmctld, slurmd and srun (Debian package slurm-wlm)")
    with ExitStack() as stack:
        started = Batch(made)
        stack.callback(started.close)
        yield started
