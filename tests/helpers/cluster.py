"""A cluster on this machine: nodes that are namespaces on a bridge, and a service that their sidecars report to.

A node has its own network, host name, processes, and its own `/etc`, `/run`, `/dev/shm` and `/var/tmp`; `/tmp` and the
rest of the files are those of the machine. The hooks of `deploy/slurm` begin and end a job on each node, as a batch
system calls them. Needs root, and a kernel with namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barograph_agent import shim
from helpers.hooks import unhurried
from helpers.log import wait_until
from helpers.mpi import REPOSITORY, Mpi, missing
from helpers.munged import munged

SUBNET: Final = "10.77.0"
SERVICE: Final = f"{SUBNET}.254"
HEAD: Final = f"{SUBNET}.253"
ENDPOINT: Final = f"tcp://{SERVICE}:7450"
TOOLS: Final = ("ip", "tc", "unshare", "nsenter", "mount")
_TASKS: Final = (b"/steps", b"hydra_pmi_proxy", b"prted")
PROGRAMS: Final = REPOSITORY / "tests/cluster/programs"

_NODE: Final = """\
mount --make-rprivate /
mount -t tmpfs tmpfs {layer}
mkdir {layer}/etc {layer}/work
mount -t overlay overlay -o lowerdir=/etc,upperdir={layer}/etc,workdir={layer}/work /etc
for folder in /run /dev/shm /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
mkdir -p /etc/barograph
cat {root}/hosts > /etc/hosts
hostname {name}
ip link set lo up
[ {name} = head ] || mount -t proc proc /proc
head -c 8 /dev/zero > /run/skew
touch {root}/{name}.there
trap : CHLD
while :; do sleep 3600 & wait $!; done
"""
_ENTER: Final = """\
#!/bin/sh
# enter [-x] HOST COMMAND... - in the place of ssh: a command on a node, in an environment of its own.
while case $1 in -*) true ;; *) false ;; esac do shift; done
host=$1; shift
exec nsenter --target="$(cat {root}/$host.pid)" --all -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 /bin/sh -c "$*"
"""
_TASK: Final = """\
#!/bin/sh
# task PROGRAM... - in the place of the batch system: begin a task on this node.
export SLURMD_NODENAME="$(hostname)" SLURM_STEP_ID=0 STEPS_CONTROL={root}/control
eval "$(/bin/sh {root}/etc/slurm/task-prolog)"
LD_PRELOAD="$LD_PRELOAD {root}/skew.so {root}/patient.so"
exec "$@"
"""
_PYTHON: Final = """\
#!/bin/sh
LD_PRELOAD={root}/skew.so exec {python} "$@"
"""
_READ: Final = """\
import json, os, sys
from barograph_agent.deliver import keys
from barograph_collector.client.log_reader import LogReader
with LogReader(sys.argv[1], 60.0, keys.from_environment(os.environ)) as reader:
    for batch in reader.read_all(sys.argv[2]):
        names = list(batch.columns)
        for row in zip(*batch.columns.values(), strict=True):
            row = {name: getattr(value, "item", lambda value=value: value)() for name, value in zip(names, row)}
            print(json.dumps(row))
"""


class Place:
    """A set of namespaces, held by a process."""

    def __init__(self, root: Path, name: str, script: str, *kinds: str) -> None:
        self.name = name
        pid_file, there = root / f"{name}.pid", root / f"{name}.there"
        log = (root / f"{name}.log").open("ab")
        command = [
            "unshare",
            *kinds,
            *(["--pid", "--fork", "--kill-child"] if "--uts" in kinds and name != "head" else []),
        ]
        self.holder = subprocess.Popen([*command, "bash", "-euc", script], stdout=log, stderr=log)
        log.close()
        wait_until(lambda: there.exists() or self.holder.poll() is not None, f"{name} is there")
        assert self.holder.poll() is None, (root / f"{name}.log").read_text()
        self.pid = _child(self.holder.pid) if "--fork" in command else self.holder.pid
        pid_file.write_text(str(self.pid))

    def command(self, *words: str | Path) -> list[str]:
        """The command line that runs this one there."""
        # Signals must reach the command itself. Only a process namespace of its own needs a process between.
        fork = [] if self.pid != self.holder.pid else ["--no-fork"]
        return ["nsenter", f"--target={self.pid}", "--all", *fork, "--", *map(str, words)]

    def run(self, *words: str | Path, **variables: str) -> str:
        """A command there, with these variables only, to its end; returns what it prints. It must succeed."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}
        done = subprocess.run(
            self.command(*words), env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{self.name}: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
        return done.stdout

    def kill(self) -> None:
        """SIGKILL for everything there, at once."""
        self.holder.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.holder.wait()


def _child(pid: int) -> int:
    """The only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def write_control(path: Path, ranks: int) -> None:
    """Write the control file of `programs/steps.c`: no rank is slow."""
    path.write_bytes(struct.pack(f"{ranks}d", *[1.0] * ranks))


def slow(control: Path, ranks: Sequence[int], factor: float) -> float:
    """Multiply the work of these ranks from now on; returns the time, Unix seconds."""
    with control.open("r+b") as file:
        for rank in ranks:
            file.seek(8 * rank)
            file.write(struct.pack("d", factor))
    return time.time()


@dataclass
class Job:
    """A job on nodes of the cluster. id: as the batch system has it."""

    id: str
    process: subprocess.Popen[str]
    nodes: list[str]
    ranks: int
    control: Path
    began_at: float

    def slow(self, ranks: Sequence[int], factor: float) -> float:
        """Multiply the work of these ranks from now on; returns the time, Unix seconds."""
        return slow(self.control, ranks, factor)


class Cluster:
    """Nodes `n1`, `n2` and so on, a head node from which jobs are launched, and a service, all on one bridge."""

    def __init__(self, root: Path, nodes: int, munge: str, window: float) -> None:
        self.root = root
        self._window = window
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.munge = munge
        self._jobs = 0
        self._write_files()
        self.service = Place(
            root, "service", f"ip link set lo up; touch {root}/service.there; exec sleep 1000000", "--net"
        )
        # Of its own: else it is that of a link, and changes when the node of that link dies.
        self.service.run("ip", "link", "add", "bridge", "address", "02:00:0a:4d:00:fe", "type", "bridge")
        self.service.run("ip", "addr", "add", f"{SERVICE}/24", "dev", "bridge")
        self.service.run("ip", "link", "set", "bridge", "up")
        self.nodes: dict[str, Place] = {}
        for name in [*self.names, "head"]:
            self.add_node(name)
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def add_node(self, name: str) -> None:
        """Start a node and connect it."""
        layer = self.root / f"{name}.layer"
        layer.mkdir(exist_ok=True)
        (self.root / f"{name}.there").unlink(missing_ok=True)
        script = _NODE.format(layer=layer, root=self.root, name=name)
        node = self.nodes[name] = Place(self.root, name, script, "--net", "--uts", "--mount")
        self.service.run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(node.pid))
        self.service.run("ip", "link", "set", name, "master", "bridge", "up")
        node.run("ip", "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        node.run("ip", "link", "set", "eth0", "up")

    def address(self, name: str) -> str:
        """The address of a node."""
        return HEAD if name == "head" else f"{SUBNET}.{name.removeprefix('n')}"

    def _write_files(self) -> None:
        etc = self.root / "etc"
        (self.root / "folder").mkdir()
        for name in ("hooks", "slurm"):
            shutil.copytree(REPOSITORY / "deploy" / name, etc / name)
        unhurried(etc / "hooks/bounded")
        names = {name: self.address(name) for name in [*self.names, "head"]}
        hosts = ["127.0.0.1 localhost\n", *(f"{address} {name}\n" for name, address in names.items())]
        (self.root / "hosts").write_text("".join(hosts))
        for name, text in (("enter", _ENTER), ("task", _TASK), ("python", _PYTHON)):
            (self.root / name).write_text(text.format(root=self.root, python=sys.executable))
            (self.root / name).chmod(0o755)
        for name in ("skew", "patient"):
            words = ["-O1", "-shared", "-fPIC", "-o", str(self.root / f"{name}.so"), str(PROGRAMS / f"{name}.c")]
            subprocess.run(["cc", *words], check=True)
        keys = [sys.executable, "-m", "barograph", "keys", "--keys", str(self.root / "keys")]
        subprocess.run([*keys, "init"], check=True, capture_output=True, cwd=self.root)
        for role, name in (("agent", "nodes"), ("writer", "modeler"), ("writer", "alerts"), ("reader", "staff")):
            subprocess.run([*keys, "add", role, name], check=True, capture_output=True, cwd=self.root)
        values = {
            "python": self.root / "python",
            "shim": shim.library(),
            "collector": ENDPOINT,
            "key": self.root / "keys/nodes.key",
            "munge_socket": self.munge,
            "cluster": "lab",
        }
        (etc / "hooks.conf").write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def start(self, daemon: str) -> None:
        """Start collector, modeler or alerts, and wait until it is there."""
        words = {
            "collector": ["--state", self.root / "state", "--listen", ENDPOINT, "--keys", self.root / "keys",
                          f"--munge={self.munge}"],
            "modeler": [f"--window={self._window}", "--collector", ENDPOINT, "--key", self.root / "keys/modeler.key"],
            "alerts": ["--collector", ENDPOINT, "--key", self.root / "keys/alerts.key"],
        }[daemon]  # fmt: skip
        path = self.root / f"{daemon}.log"
        with path.open("ab") as log:
            self.daemons[daemon] = subprocess.Popen(
                self.service.command(sys.executable, "-m", f"barograph_{daemon}.main", *words), stdout=log, stderr=log
            )
        wait_until(lambda: self._answers(daemon), f"{daemon} is there\n{path.read_text()}", every=0.1)

    def _answers(self, daemon: str) -> bool:
        assert self.daemons[daemon].poll() is None, (self.root / f"{daemon}.log").read_text()
        with contextlib.suppress(AssertionError):
            return bool(self.metrics(daemon))
        return False

    def metrics(self, daemon: str) -> str:
        """The exposition of a daemon."""
        port = {"collector": 7451, "modeler": 7452, "alerts": 7453}[daemon]
        read = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"
        return self.service.run(sys.executable, "-c", read, f"http://127.0.0.1:{port}/metrics")

    def metric(self, daemon: str, series: str) -> float:
        """A value of the exposition; 0 where it is not there."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics(daemon), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def rows(self, table: str, job: str = "") -> list[dict[str, Any]]:
        """Rows of a table, with `job` those of its steps."""
        said = self.service.run(
            sys.executable, "-c", _READ, ENDPOINT, table, BAROGRAPH_KEY=str(self.root / "keys/staff.key")
        )
        found = [json.loads(line) for line in said.splitlines()]
        return [row for row in found if not job or str(row["job"]).startswith(f"lab/{job}.")]

    def begin(
        self,
        mpi: Mpi,
        program: Sequence[str | Path],
        nodes: Sequence[str] = (),
        per_node: int = 2,
    ) -> Job:
        """Begin a job: prologs, then the program on all nodes with the control file of `programs/steps.c`."""
        self._jobs += 1
        job, on = str(self._jobs), list(nodes or self.names)
        control = self.root / "control"
        ranks = per_node * len(on)
        write_control(control, ranks)
        variables = self._variables(job, on)
        for name in on:
            self._hook(name, "prolog", variables)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **variables, **mpi.environment()}
        tasks: list[str | Path] = [self.root / "task", *program]
        if mpi.is_openmpi:
            hosts = ",".join(f"{name}:{per_node}" for name in on)
            which, agent = ("--mca", "plm_rsh") if mpi.name.startswith("debian") else ("--prtemca", "plm_ssh")
            words = [which, f"{agent}_agent", self.root / "enter", which, f"{agent}_no_tree_spawn", "1",
                     "--host", hosts, "--bind-to", "none", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1",
                     "--mca", "mpi_yield_when_idle", "1"]  # fmt: skip
            # It passes on none, and with some of them it would launch by Slurm.
            tasks = ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *tasks]
            environment = {name: value for name, value in environment.items() if name not in variables}
        else:
            environment |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
            words = ["-launcher", "ssh", "-launcher-exec", self.root / "enter", "-hosts", ",".join(on), "-ppn",
                     str(per_node), "-iface", "eth0"]  # fmt: skip
        command = self.nodes["head"].command(mpi.mpiexec, *words, "-n", str(ranks), *tasks)
        with (self.root / f"{job}.out").open("w") as log:
            # In a folder of which no file changes, which would make it other work.
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, text=True, cwd=self.root / "folder"
            )
        return Job(job, process, on, ranks, control, time.time())

    def end(self, job: Job, seconds: float = 120.0) -> int:
        """Wait for the program and end the job on all nodes that live; returns the exit status."""
        try:
            status = job.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"job {job.id} goes on\n{self.output(job)}") from None
        for name in job.nodes:
            if self.nodes[name].holder.poll() is None:
                # As a batch system does. A launcher that died may have left some.
                for pid in self.processes(name, *_TASKS):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._hook(name, "epilog", self._variables(job.id, job.nodes))
        return status

    def output(self, job: Job) -> str:
        """What the job has printed."""
        return (self.root / f"{job.id}.out").read_text()

    def verdict(self, job: Job) -> list[dict[str, Any]]:
        """All scores of a job once the last is final."""
        found: list[dict[str, Any]] = []

        def is_final() -> bool:
            found[:] = self.rows("scores", job.id)
            return bool(found) and found[-1]["final"] == 1

        wait_until(is_final, f"job {job.id} has a verdict\n{self.output(job)}", every=0.5)
        return found

    def _variables(self, job: str, on: list[str]) -> dict[str, str]:
        return {"SLURM_JOB_ID": job, "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0", "SLURM_JOB_USER": "root",
                "SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_NUM_NODES": str(len(on))}  # fmt: skip

    def _hook(self, name: str, hook: str, variables: Mapping[str, str]) -> None:
        self.nodes[name].run("/bin/sh", self.root / "etc/slurm" / hook, SLURMD_NODENAME=name, **variables)

    def shape(self, name: str, rate: str) -> None:
        """Limit the link of a node, both ways, to a rate such as 20mbit; none if it is empty."""
        for place, device in ((self.nodes[name], "eth0"), (self.service, name)):
            limit = ["replace", "dev", device, "root", "tbf", "rate", rate, "burst", "16k", "latency", "100ms"]
            place.run("tc", "qdisc", *(limit if rate else ["del", "dev", device, "root"]))

    def cut_off(self, name: str) -> None:
        """Let nothing of the service reach a node, which reaches all others."""
        self.service.run("ip", "route", "add", "blackhole", f"{self.address(name)}/32")

    def let_in(self, name: str) -> None:
        """The end of `cut_off`."""
        self.service.run("ip", "route", "del", "blackhole", f"{self.address(name)}/32")

    def set_clock(self, name: str, seconds: float) -> None:
        """Let the clock of a node be ahead by so many seconds from now on."""
        write = "import struct, sys; open('/run/skew', 'r+b').write(struct.pack('d', float(sys.argv[1])))"
        self.nodes[name].run(sys.executable, "-c", write, str(seconds))

    def sidecars(self, name: str) -> list[int]:
        """Processes that watch jobs on a node."""
        return self.processes(name, b"python -P -m barograph_agent.sidecar.nodewatch")

    def processes(self, name: str, *parts: bytes) -> list[int]:
        """Processes on a node whose first words hold one of these."""
        where = Path(f"/proc/{self.nodes[name].pid}/ns/pid").readlink()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = b" ".join((path / "cmdline").read_bytes().split(b"\0")[:4])
                if any(part in words for part in parts) and (path / "ns/pid").readlink() == where:
                    found.append(int(path.name))
        return found

    def close(self) -> None:
        """End everything."""
        for process in self.daemons.values():
            process.terminate()
        for process in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
        for node in [*self.nodes.values(), self.service]:
            node.kill()


@contextmanager
def cluster(nodes: int, window: float = 1.0) -> Iterator[Cluster]:
    """A cluster whose service compares windows of so many seconds; skips the test where none can be, in CI fails it."""
    lacking = [tool for tool in TOOLS if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    if os.getuid() != 0:
        missing("a cluster of namespaces: needs root")
    if lacking:
        missing(f"a cluster of namespaces: no {', '.join(lacking)} (Debian packages iproute2 and util-linux)")
    try_it = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    tried = subprocess.run(try_it, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        missing(f"a cluster of namespaces: {tried.stderr.strip()}")
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="barograph-cluster-", dir="/tmp"))
        root.chmod(0o755)
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        munge = stack.enter_context(munged(root / "munge"))
        Path(munge).parent.chmod(0o755)
        made = Cluster(root, nodes, munge, window)
        stack.callback(made.close)
        for daemon in ("collector", "modeler", "alerts"):
            made.start(daemon)
        yield made
