"""The checks of `barograph doctor`: whether runs on this node can be watched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from barograph_agent import shim
from barograph_agent.deliver import credential, keys
from barograph_agent.job import rules
from barograph_agent.protocol import wire
from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.settings import agent, places, sources
from barograph_agent.sidecar.plan import RING_VARIABLE
from barograph_agent.system.clock import CLOCK
from barograph_agent.system.network import Network
from barograph_agent.work.hidden import SECURE, of_file

MIN_RING_BYTES: Final = 111_616
MAX_RING_BYTES: Final = 6_393_856
"""Of a rank: the smallest ring, and that of the default of BAROGRAPH_RING_RECORDS."""
RINGS_SHARE: Final = 8
"""Of the free memory, one of so many parts is for rings (`memory.c`)."""
SPOOL_BYTES: Final = 256 * 2**20
ANSWER_SECONDS: Final = 5.0
_AWAY: Final = "start `barograph up` there, or set BAROGRAPH_COLLECTOR; until then runs are spooled"
_SHARED: Final = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "fuse", "9p", "cifs", "smb", "afs", "pvfs", "orangefs",
                  "panfs")  # fmt: skip
"""Prefixes of the types of file systems that nodes may share."""
State = Literal["ok", "warn", "fail"]
PROGRAM_SECONDS: Final = 60.0
BARRIERS: Final = 3
_C: Final = """
#include <mpi.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    for (int i = 0; i < %d; i++) MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
"""
_PYTHON: Final = "from mpi4py import MPI\nfor _ in range(%d):\n    MPI.COMM_WORLD.Barrier()\n"
_LAUNCHERS: Final = {"Intel(R)": "Intel MPI", "Open": "Open MPI", "PRRTE": "Open MPI", "HYDRA": "MPICH"}
"""MPIs by a word of what `mpiexec --version` prints."""
_SLOW: Final = "each collective costs about 40 ns instead of 15; nothing else changes"


class Finding(NamedTuple):
    """The result of a check: one line, and the remedy if it did not pass."""

    check: str
    state: State
    text: str
    advice: str = ""


Environment = Mapping[str, str]


def examine(environment: Environment, collectors: str, programs: Sequence[str] = ()) -> Iterator[Finding]:
    """Run all checks; yields each finding as soon as it is available. A failed check does not raise.

    collectors: addresses with commas between. programs: whether these can be watched, too.
    """
    yield check_shim()
    yield check_launcher(environment)
    yield from check_watching(environment)
    yield check_rings(places.ring_root(environment))
    yield check_spool(places.spool_root(environment))
    yield from check_collectors(collectors, environment)
    yield check_rules(environment)
    yield check_salt(environment)
    yield check_configuration(environment)
    yield check_hooks(places.SITE)
    yield check_cores(len(os.sched_getaffinity(0)), os.cpu_count() or 1)
    for program in programs:
        yield check_program(program, environment)


def check_shim() -> Finding:
    """Whether the shim is installed and the dynamic linker of this node loads it."""
    try:
        library = shim.library()
        preload = shim.preload(library, "")
    except (FileNotFoundError, ValueError) as error:
        return Finding("shim", "fail", str(error), "install barograph again with pip, on a machine with a C compiler")
    done = run([sys.executable, "-I", "-c", ""], {**os.environ, "LD_PRELOAD": preload})
    if done is None or done.returncode or "ld.so" in done.stderr:
        text = f"{library} cannot be preloaded: {last(done)}"
        return Finding("shim", "fail", text, "build it on this kind of node")
    return Finding("shim", "ok", str(library))


def check_launcher(environment: Environment) -> Finding:
    """The mpiexec in PATH and its MPI implementation."""
    path = shutil.which("mpiexec", path=environment.get("PATH"))
    if path is None:
        return Finding("mpi", "warn", "no mpiexec in PATH", "load the MPI module that jobs use, and ask again")
    done = run([path, "--version"], environment)
    text = (done.stdout + done.stderr) if done else ""
    kind = next((kind for word, kind in _LAUNCHERS.items() if word in text), "of an unknown kind")
    return Finding("mpi", "ok", f"{path}: {kind}")


def check_watching(environment: Environment) -> Iterator[Finding]:
    """Whether the barriers of a one-rank program are in its ring, and the clock that timed them, if there is one."""
    try:
        preload = shim.preload(shim.library(), environment.get("LD_PRELOAD", ""))
    except (FileNotFoundError, ValueError):
        return  # reported by check_shim
    with tempfile.TemporaryDirectory(prefix="barograph-doctor-") as folder:
        watching, clock = _watch(Path(folder), environment, preload)
    yield watching
    if clock:
        fast = "time stamp counter" in clock
        yield Finding("clock", "ok" if fast else "warn", clock, "" if fast else _SLOW)


def _watch(folder: Path, environment: Environment, preload: str) -> tuple[Finding, str]:
    """The finding, and the ring's clock, empty if there is no ring."""
    program = _program(folder, environment)
    if program is None:
        advice = "load the MPI module that jobs use, with mpicc or mpi4py, and ask again"
        text = "not tried: neither mpicc nor mpi4py to make a program with"
        return Finding("watching", "warn", text, advice), ""
    mpiexec = shutil.which("mpiexec", path=environment.get("PATH"))
    command = [*([mpiexec, "-n", "1"] if mpiexec else []), *program]
    rings = folder / "rings"
    rings.mkdir()
    own = {name: value for name, value in environment.items() if name not in ("BAROGRAPH_DISABLE", "BAROGRAPH_RANKS")}
    # Open MPI's mpiexec refuses to run as root otherwise; operators are.
    own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = run(command, {**own, "LD_PRELOAD": preload, RING_VARIABLE: str(rings)})
    if done is None or done.returncode:
        text = f"a program of one rank failed: {last(done)}"
        advice = f"make this work first, without barograph: {' '.join(command[:4])}"
        return Finding("watching", "fail", text, advice), ""
    path = next(rings.glob("*.ring"), None)
    if path is None:
        text = "a program of one rank ran, and none of its barriers were seen"
        advice = "is its MPI linked statically, or does mpiexec drop LD_PRELOAD?"
        return Finding("watching", "fail", text, advice), ""
    try:
        with Ring(path) as ring:
            seen, clock = ring.head, ring.clock
    except RingError as error:
        advice = "shim and agent are of two versions: install barograph again"
        return Finding("watching", "fail", str(error), advice), ""
    text = f"{seen} of {BARRIERS} barriers of a program of one rank were seen"
    if seen == BARRIERS:
        return Finding("watching", "ok", text), clock
    return Finding("watching", "fail", text, "please report this, with the name and version of your MPI"), clock


def _program(folder: Path, environment: Environment) -> list[str] | None:
    """The command of a program with BARRIERS barriers; None if neither mpicc nor mpi4py is available."""
    if mpicc := shutil.which("mpicc", path=environment.get("PATH")):
        source, output = folder / "program.c", folder / "program"
        source.write_text(_C % BARRIERS)
        done = run([mpicc, "-o", str(output), str(source)], environment)
        if done is not None and done.returncode == 0:
            return [str(output)]
    done = run([sys.executable, "-c", "import mpi4py"], environment)
    return [sys.executable, "-c", _PYTHON % BARRIERS] if done is not None and done.returncode == 0 else None


def run(command: Sequence[str], environment: Environment) -> subprocess.CompletedProcess[str] | None:
    """Run a command and capture its output; None if it did not start or exceeded PROGRAM_SECONDS."""
    try:
        return subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, timeout=PROGRAM_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def last(done: subprocess.CompletedProcess[str] | None) -> str:
    """The last line of output that contains letters."""
    if done is None:
        return "it could not be started, or did not end"
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if any(map(str.isalpha, line))]
    return lines[-1][:200] if lines else f"status {done.returncode}"


def check_rings(root: Path) -> Finding:
    """Whether memory suffices for one ring per processor."""
    parent = _existing(root)
    free = _free(parent)
    share = free // RINGS_SHARE // (os.cpu_count() or 1)
    most = min(share, MAX_RING_BYTES)
    text = f"{parent}: {free / 1e6:,.0f} MB free, a rank takes up to {most / 1e6:.1f} of {MAX_RING_BYTES / 1e6:.1f} MB"
    if not os.access(parent, os.W_OK) or share < MIN_RING_BYTES:
        return Finding("rings", "fail", text, "make room there, or set BAROGRAPH_RINGS to another directory in memory")
    if _file_system(parent) not in ("tmpfs", "ramfs"):
        return Finding("rings", "warn", f"{text}; it is {_file_system(parent)}", "set BAROGRAPH_RINGS to one in memory")
    if share < MAX_RING_BYTES / RINGS_SHARE:
        return Finding("rings", "warn", text, "fast programs lose intervals: make room, or set BAROGRAPH_RINGS")
    return Finding("rings", "ok", text)


def check_spool(root: Path) -> Finding:
    """Whether the spool is on a disk of this node with room for one run."""
    parent = _existing(root)
    kind, free = _file_system(parent), _free(parent)
    text = f"{parent}: {kind}, {free / 2**20:,.0f} MB free"
    advice = "set BAROGRAPH_SPOOL to a directory on a disk of this node"
    if not os.access(parent, os.W_OK):
        return Finding("spool", "fail", f"{text}, not writable", advice)
    if kind.startswith(_SHARED):
        return Finding("spool", "fail", f"{text}: shared between nodes", advice)
    if free < SPOOL_BYTES:
        return Finding("spool", "warn", f"{text}, a run may need {SPOOL_BYTES / 2**20:.0f} MB", advice)
    return Finding("spool", "ok", text)


def check_collectors(collectors: str, environment: Environment) -> Iterator[Finding]:
    """The same of each collector of a list, if it is one."""
    try:
        places.check_endpoints(collectors)
    except places.EndpointError as error:
        yield Finding("collector", "fail", str(error), "set BAROGRAPH_COLLECTOR")
        return
    for endpoint in places.endpoints(collectors):
        yield check_collector(endpoint, environment)


def check_collector(endpoint: str, environment: Environment) -> Finding:
    """Whether the collector answers a read with this node's key, and an agent's credential can be created."""
    try:
        places.check_endpoint(endpoint)
        key = keys.from_environment(environment)
        if key is not None and key.role == "agent":
            credential.maker(environment)("doctor")
    except keys.KeyFileError as error:
        return Finding("collector", "fail", str(error), f"set {keys.VARIABLE}")
    except credential.CredentialError as error:
        return Finding("collector", "fail", str(error), "start munged, or give jobs tokens")
    except ValueError as error:
        return Finding("collector", "fail", str(error), "set BAROGRAPH_COLLECTOR")
    return _read(endpoint, key)


def _read(endpoint: str, key: keys.ClientKey | None) -> Finding:
    connection = Network().connect(endpoint, key, reads=True)
    try:
        began = CLOCK.monotonic()
        request = wire.encode(wire.Read(1, "jobs", -1, 1))
        if not (connection.send(request, ANSWER_SECONDS) and connection.wait(ANSWER_SECONDS)):
            return _no_answer(endpoint, connection.trouble)
        took = CLOCK.monotonic() - began
        answer = wire.decode_from_collector(connection.receive())
        connection.send(wire.encode(wire.Hello("probe")), ANSWER_SECONDS)
        opened = wire.decode_from_collector(connection.receive()) if connection.wait(ANSWER_SECONDS) else None
    except msgspec.DecodeError:
        return Finding("collector", "fail", f"{endpoint} answers, but is not a collector", _AWAY)
    finally:
        connection.close()
    # An agent may not read, so an error shows that the connection works.
    if not isinstance(answer, wire.Rows) or (answer.error and (key is None or key.role != "agent")):
        return Finding("collector", "fail", f"{endpoint} sent an unexpected answer", "use the same version")
    if isinstance(opened, wire.Refuse) and opened.reason in wire.WITHHELD:
        return Finding("collector", "fail", f"{endpoint}: {opened.detail}", "make room there")
    client = f" {key.name}, as {key.role}," if key is not None else ""
    return Finding("collector", "ok", f"{endpoint} answered{client} in {took * 1000:.0f} ms")


def _no_answer(endpoint: str, trouble: str) -> Finding:
    if trouble:
        return Finding("collector", "fail", f"{endpoint}: {trouble}", "ask for a key file: `barograph keys add agent`")
    return Finding("collector", "fail", f"no answer from {endpoint} in {ANSWER_SECONDS:g} s", _AWAY)


def check_rules(environment: Environment) -> Finding:
    """Whether the site's rules, if any, are valid."""
    path = places.rules(environment)
    if path is None:
        return Finding("rules", "ok", "none")
    try:
        found = rules.read(path)
    except rules.RulesError as error:
        return Finding("rules", "fail", str(error), "fix the file; until then runs ignore it")
    return Finding("rules", "ok", f"{path}: {len(found.app)} names, {len(found.param)} parameters")


def check_salt(environment: Environment) -> Finding:
    """Whether the site's secret for digests, if any, can be read."""
    given = environment.get("BAROGRAPH_SALT")
    if not given:
        return Finding("salt", "ok", "none: digests are salted with the cluster's name")
    advice = "make it a file of random bytes, readable by all users; until then nothing is digested"
    try:
        secret = Path(given).read_bytes().strip()
    except OSError as error:
        return Finding("salt", "fail", f"{given}: {error.strerror}", advice)
    return Finding("salt", "ok", given) if secret else Finding("salt", "fail", f"{given}: empty", advice)


def check_configuration(environment: Environment) -> Finding:
    """Whether the table [agent] of the configuration, if any, is valid."""
    path = sources.site_file(environment)
    try:
        found = sources.from_file(agent.AgentSettings, path)
    except sources.ConfigError as error:
        return Finding("config", "fail", str(error), "fix the file; until then runs ignore it")
    return Finding("config", "ok", f"{path}: {len(found)} settings in [agent]" if path else "none")


def check_hooks(site: Path) -> Finding:
    """Whether this user can run the batch system's hooks, if installed, and load their shim."""
    scripts = sorted(path for path in site.glob("*/task-*") if path.is_file())
    if not scripts:
        return Finding("hooks", "ok", f"none in {site}: jobs are watched with `barograph run` only")
    for path in scripts:
        if not os.access(path, os.R_OK | os.X_OK):
            advice = f"chmod -R a+rX {site}: a batch system fails tasks whose hook it cannot run"
            return Finding("hooks", "fail", f"{path} cannot be run by this user", advice)
    link, settings = site / shim.LIBRARY, site / "hooks.conf"
    text = settings.read_text() if os.access(settings, os.R_OK) else ""
    if not link.exists() and "shim=" not in text:
        advice = f'ln -sfn "$({sys.executable} -m barograph_agent.shim)" {link}'
        return Finding("hooks", "fail", f"{link} leads nowhere, so no job is watched", advice)
    return Finding("hooks", "ok", str(site))


def check_cores(own: int, processors: int) -> Finding:
    """Whether a job leaves processors of this node to its sidecar. own: those that it may use."""
    text = f"a job may use {own} of {processors} processors"
    if own < processors:
        return Finding("cores", "ok", text)
    advice = "keep one for the system: CoreSpecCount=1 in slurm.conf, or see `Where sidecars run` in slurm.md"
    return Finding("cores", "warn", f"{text}: ranks wait while a sidecar has one", advice)


def check_program(program: str, environment: Environment) -> Finding:
    """Whether the shim sees the MPI of a program, by its file. What a script starts is not looked at."""
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return Finding("program", "fail", f"{program}: no such program", "name an executable file")
    hidden = of_file(path)
    if hidden is None:
        return Finding("program", "ok", f"{path}: dynamically linked, so the shim can be preloaded")
    advice = "link MPI as a shared library, the default of mpicc"
    if hidden.why == SECURE:
        advice = "run a copy of it that has no such bit"
    return Finding("program", "fail", str(hidden), advice)


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _free(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _file_system(path: Path) -> str:
    """The kernel's name for the type of the file system that contains this path."""
    best, kind = "", "unknown"
    real = str(path.resolve())
    with open("/proc/self/mountinfo", errors="replace") as mounts:  # noqa: PTH123
        for line in mounts:
            left, _, right = line.partition(" - ")
            point = left.split()[4].encode().decode("unicode_escape")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, right.split()[0]
    return kind
