"""The hooks without a scheduler, in the environments of PBS and Flux: variables of tasks, and exclusions."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from barograph_agent import shim
from helpers.alerting import tool
from helpers.hooks import limit, noted, unhurried
from helpers.log import wait_until
from helpers.mpi import REPOSITORY

GUIDE = REPOSITORY / "docs/operator/slurm.md"
UID, GID = str(os.getuid()), str(os.getgid())


class Node:
    """A node with the hooks, where everybody is the user of this test; sidecars only note that they were started."""

    def __init__(self, root: Path) -> None:
        self.etc = root / "etc"
        for folder in ("hooks", "slurm", "pbs", "flux"):
            shutil.copytree(REPOSITORY / "deploy" / folder, self.etc / folder)
        unhurried(self.etc / "hooks/bounded", self.etc / "flux/prolog", self.etc / "flux/epilog")
        self.rings, self.spool, self.active, self.started = (root / name for name in ("r", "s", "a", "started"))
        for path in (self.rings, self.spool):
            path.mkdir()
        python = self.etc / "python"
        # A job's end may start one while that of its begin is still noting itself.
        part = f"{self.started}.$$"
        notes = ("env", "ulimit -d", 'echo "$(nice) $(taskset -cp $$)"', 'echo "$@"')
        noting = "".join(f"{note} >> {part}\n" for note in notes) + f"mv {part} {self.started}\n"
        python.write_text(f"#!/bin/sh\n{noting}")
        python.chmod(0o755)
        lines = {
            "python": python,
            "shim": shim.library(),
            "rings": self.rings,
            "spool": self.spool,
            "active": self.active,
        }
        (self.etc / "hooks.conf").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def call(self, script: str, *words: str, environment: Mapping[str, str]) -> str:
        """Run a script of the hooks; gives what it prints."""
        command = ["/bin/sh", str(self.etc / script), *words]
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=120, check=False)
        # What the dynamic linker says of the user's own preload, it would say without us.
        told = "" if "LD_PRELOAD" in environment else done.stderr
        assert (done.returncode, told) == (0, "")
        return done.stdout

    def begin(self, name: str, *words: str, **environment: str) -> None:
        self.call("hooks/bounded", "job-begin", name, UID, GID, *words, environment=environment)

    def task(self, name: str, step: str = "0", **environment: str) -> dict[str, str]:
        """What a task's environment gets."""
        text = self.call("hooks/bounded", "task-begin", name, UID, "0", step, environment=environment)
        return dict(line.partition("=")[::2] for line in text.splitlines())

    def job(self, name: str) -> Path:
        return self.rings / "barograph" / UID / name

    def sidecar(self) -> str:
        """What the sidecar was started with, once it was."""
        wait_until(self.started.exists, "a sidecar is started")
        return self.started.read_text()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_task_of_a_watched_job_gets_its_variables(node: Node) -> None:
    node.begin("pbs-7.server@n1", PBS_JOBID="7.server")
    found = node.task("pbs-7.server@n1", PBS_NODEFILE="/var/nodes")
    assert found == {
        "ASAN_OPTIONS": "verify_asan_link_order=0",
        "LD_PRELOAD": str(shim.library()),
        "PYTHONPATH": str(shim.HOOK),
        "BAROGRAPH_RING_DIR": f"{node.job('pbs-7.server@n1')}/0.0",
        "BAROGRAPH_RANKS": "all",
        "BAROGRAPH_FEATURES": f"{node.job('pbs-7.server@n1')}/0.0",
    }
    assert "PBS_NODEFILE=/var/nodes" in (Path(found["BAROGRAPH_RING_DIR"]) / "step").read_text().splitlines()
    told = node.sidecar()
    assert "PBS_JOBID=7.server\n" in told
    assert told.splitlines()[-3] == "2097152"
    assert told.splitlines()[-1] == (
        f"-P -m barograph_agent.sidecar.nodewatch {node.job('pbs-7.server@n1')} {node.spool}/barograph/{UID} "
        f"{node.active}/pbs-7.server@n1"
    )


@pytest.mark.parametrize(
    ("setting", "where"), [("", "first"), ("last", "last"), ("9999", "first"), ("x; false", "first")]
)
def test_a_sidecar_runs_where_its_hook_does_or_the_site_wants_it_and_behind_ranks(
    node: Node, setting: str, where: str
) -> None:
    cores = {"first": min(os.sched_getaffinity(0)), "last": max(os.sched_getaffinity(0))}
    with (node.etc / "hooks.conf").open("a") as file:
        file.write(f"cores='{cores.get(setting, setting)}'\n")
    command = ["taskset", "-c", str(cores["first"]), "/bin/sh", node.etc / "hooks/job-begin", "pbs-7@n1", UID, GID]
    assert subprocess.run(command, env={}, capture_output=True, check=True).stderr == b""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    told = node.sidecar().splitlines()[-2]
    assert told.startswith(f"{min(ours + 10, 19)} ")
    assert told.endswith(f": {cores[where]}")


@pytest.mark.parametrize(
    ("setting", "comment", "mark"),
    [("", "", ""), ("", "for ada, barograph=verdict", "verdict"), ("output", "", "verdict"), ("elsewhere", "", "")],
)
def test_jobs_whose_verdict_is_wanted_are_marked(node: Node, setting: str, comment: str, mark: str) -> None:
    with (node.etc / "hooks.conf").open("a") as file:
        file.write(f"verdict={setting}\n")
    node.begin("slurm-7@n1", "ada", "physics", "all", comment, verdict="verdict")
    assert (node.active / "slurm-7@n1").read_text() == f"{mark}\n"


def test_a_task_keeps_what_it_has_set_itself(node: Node) -> None:
    node.begin("pbs-7@n1")
    found = node.task("pbs-7@n1", LD_PRELOAD="a.so:b.so", BAROGRAPH_RANKS="0,3", BAROGRAPH_FEATURES="/mine")
    assert found["LD_PRELOAD"] == f"{shim.library()} a.so:b.so"
    assert (found["BAROGRAPH_RANKS"], found["BAROGRAPH_FEATURES"]) == ("0,3", "/mine")
    assert node.task("pbs-7@n1", ASAN_OPTIONS="a=1")["ASAN_OPTIONS"] == "a=1:verify_asan_link_order=0"
    assert node.task("pbs-7@n1", PYTHONPATH="/mine:/ours")["PYTHONPATH"] == f"{shim.HOOK}:/mine:/ours"
    assert "PYTHONPATH" not in node.task("pbs-7@n1", PYTHONPATH=f"{shim.HOOK}:/mine")
    assert "ASAN_OPTIONS" not in node.task("pbs-7@n1", ASAN_OPTIONS="a=1\nLD_AUDIT=b")
    assert node.task("pbs-7@n1", LD_PRELOAD=f"x.so {shim.library()}")["LD_PRELOAD"] == f"x.so {shim.library()}"


@pytest.mark.parametrize(
    "environment",
    [{"BAROGRAPH_DISABLE": "1"}, {"BAROGRAPH_RING_DIR": "/dev/shm/barograph-0/a-run"}, {"LD_PRELOAD": "a.so\nb.so"}],
    ids=["disabled", "watched by barograph run", "a preload that is no line"],
)
def test_a_task_that_opts_out_gets_no_variables(node: Node, environment: dict[str, str]) -> None:
    node.begin("pbs-7@n1")
    assert node.task("pbs-7@n1", **environment) == {}
    assert node.task("pbs-7@n1", BAROGRAPH_DISABLE="0") != {}


def test_a_task_of_an_unwatched_job_gets_no_variables(node: Node) -> None:
    assert node.task("pbs-7@n1") == {}


@pytest.mark.parametrize(
    "words", [("ada",), ("bob", "physics"), ("bob", "", "quiet"), ("bob", "", "", "x barograph=off")]
)
def test_a_job_of_a_user_who_opted_out_is_not_watched(node: Node, words: tuple[str, ...]) -> None:
    (node.etc / "optout").write_text("user ada\n# nobody else\naccount physics\npartition quiet")
    node.begin("pbs-7@n1", *words)
    assert not node.job("pbs-7@n1").exists()
    assert not node.active.exists()
    node.begin("pbs-8@n1", "bob", "chemistry", "all", "nothing")
    assert node.job("pbs-8@n1").is_dir()


def test_ranks_with_another_nodes_directory_use_this_nodes(node: Node) -> None:
    node.begin("slurm-7@n2")
    given = node.job("slurm-7@n1") / "0.batch"
    assert node.task("slurm-7@n2", BAROGRAPH_RING_DIR=str(given))["BAROGRAPH_RING_DIR"].endswith("slurm-7@n2/0.0")
    assert given.is_dir()
    assert given.resolve() == (node.job("slurm-7@n2") / "0.batch").resolve()


def test_the_end_of_a_job_removes_its_file_and_replaces_a_dead_sidecar(node: Node) -> None:
    node.begin("pbs-7@n1")
    node.sidecar()
    node.started.unlink()
    node.call("hooks/bounded", "job-end", "pbs-7@n1", UID, GID, environment={})
    assert not (node.active / "pbs-7@n1").exists()
    assert "barograph_agent.sidecar.nodewatch" in node.sidecar()


needs_root = pytest.mark.skipif(
    os.getuid() != 0 and not os.environ.get("CI"), reason="needs root, who gives names back"
)


@pytest.fixture
def log(node: Node) -> Path:
    """What the hooks report to the node's log."""
    log, logger = node.etc / "log", node.etc / "logger"
    logger.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    logger.chmod(0o755)
    hook = node.etc / "hooks/job-begin"
    text = hook.read_text()
    assert text.count("    logger ") == 1
    hook.write_text(text.replace("    logger ", f"    {logger} "))
    return log


@needs_root
@pytest.mark.parametrize("folder", ["rings", "spool"])
@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_a_job_is_watched_where_another_user_has_taken_the_directory_of_all(
    node: Node, log: Path, folder: str, kind: str, tmp_path: Path
) -> None:
    taken: Path = getattr(node, folder) / "barograph"
    (tmp_path / "theirs").mkdir()
    if kind == "directory":
        (taken / UID / "pbs-7@n1").mkdir(parents=True)
    elif kind == "file":
        taken.touch()
    else:
        taken.symlink_to(tmp_path / "theirs")
    os.chown(taken, 65534, 65534, follow_symlinks=False)
    node.begin("pbs-7@n1")
    assert (taken.is_symlink(), taken.is_dir(), taken.stat().st_uid) == (False, True, os.getuid())
    assert (taken.stat().st_mode & 0o777, (taken / UID).stat().st_mode & 0o777) == (0o755, 0o700)
    assert node.job("pbs-7@n1").is_dir()
    assert "barograph_agent.sidecar.nodewatch" in node.sidecar()
    assert list((tmp_path / "theirs").iterdir()) == []
    assert f"{taken} belonged to uid 65534, expected {UID}: renamed" in log.read_text()
    (aside,) = taken.parent.glob(".barograph-*")
    assert aside.lstat().st_uid == 65534


def test_a_job_that_cannot_be_watched_for_want_of_its_directory_is_reported(node: Node, log: Path) -> None:
    (node.rings / "barograph").write_text("root's own file")
    node.begin("pbs-7@n1")
    assert "job pbs-7@n1 is not watched" in log.read_text()


def test_a_watched_job_reports_nothing(node: Node, log: Path) -> None:
    node.begin("pbs-7@n1")
    node.begin("pbs-8@n1")
    assert not log.exists()


@pytest.mark.parametrize("number", ["f2Ww", "\u01922Ww"])
def test_flux_begins_and_ends_jobs(node: Node, number: str) -> None:
    environment = {"FLUX_JOB_ID": number, "FLUX_JOB_USERID": UID}
    # As the page says: links in Flux's own folders.
    for name in ("prolog", "epilog"):
        link = node.etc / f"system/{name}.d/barograph"
        link.parent.mkdir(parents=True)
        link.symlink_to(node.etc / "flux" / name)
    assert node.call("system/prolog.d/barograph", environment=environment) == ""
    (job,) = (node.rings / "barograph" / UID).iterdir()
    assert job.name == f"flux-f2Ww@{os.uname().nodename}"
    assert f"FLUX_JOB_ID={number}\n" in node.sidecar()
    assert (node.active / job.name).exists()
    node.call("system/epilog.d/barograph", environment=environment)
    assert not (node.active / job.name).exists()


FLUX_SHELL = """\
local handler
plugin = { register = function(added) handler = added.handlers[1] end }
dofile(arg[1])
assert(handler.topic == "task.init")
for number = 0, 1 do
    local environment = { FLUX_TASK_RANK = tostring(number) }
    for place = 2, #arg do
        local name, value = arg[place]:match("^([^=]*)=(.*)$")
        environment[name] = value
    end
    task = {
        getenv = function(name) return environment[name] end,
        setenv = function(name, value) environment[name] = value end,
    }
    handler.fn()
    for name, value in pairs(environment) do print(number .. " " .. name .. "=" .. value) end
end
"""
"""Stands for Flux's job shell with two tasks: what it offers to Lua files, and the tasks' environments afterwards."""


@pytest.fixture
def flux_shell(node: Node, tmp_path: Path) -> Callable[..., list[dict[str, str]]]:
    lua = tool("lua5.4")
    shell, plugin = tmp_path / "shell.lua", node.etc / "flux/barograph.lua"
    shell.write_text(FLUX_SHELL)
    plugin.write_text(plugin.read_text().replace("/etc/barograph", str(node.etc)))

    def run(**environment: str) -> list[dict[str, str]]:
        words = [f"{name}={value}" for name, value in environment.items()]
        command = [lua, str(shell), str(plugin), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        tasks: list[dict[str, str]] = [{}, {}]
        for line in done.stdout.splitlines():
            number, _, text = line.partition(" ")
            variable, _, value = text.partition("=")
            tasks[int(number)][variable] = value
        assert done.stderr == ""
        return tasks

    return run


@pytest.mark.integration
def test_the_flux_shell_plugin_sets_the_variables_of_each_task(
    node: Node, flux_shell: Callable[..., list[dict[str, str]]]
) -> None:
    name = f"flux-f2Ww@{os.uname().nodename}"
    node.begin(name)
    theirs = "/a b/it's.so"
    tasks = flux_shell(FLUX_JOB_ID="\u01922Ww", FLUX_JOB_NNODES="3", LD_PRELOAD=theirs, BAROGRAPH_FEATURES="/mine")
    step = str(node.job(name) / "0.0")
    for number, task in enumerate(tasks):
        assert task["FLUX_TASK_RANK"] == str(number)
        assert task["LD_PRELOAD"] == f"{shim.library()} {theirs}"
        assert (task["BAROGRAPH_RING_DIR"], task["BAROGRAPH_FEATURES"]) == (step, "/mine")
    assert "FLUX_JOB_NNODES=3\n" in (node.job(name) / "0.0" / "step").read_text()


@pytest.mark.integration
def test_the_flux_shell_plugin_sets_nothing_for_an_unwatched_job(
    node: Node, flux_shell: Callable[..., list[dict[str, str]]]
) -> None:
    node.begin(f"flux-f2Ww@{os.uname().nodename}")
    for environment in ({}, {"FLUX_JOB_ID": "f9"}, {"FLUX_JOB_ID": "f2Ww", "BAROGRAPH_DISABLE": "1"}):
        for number, task in enumerate(flux_shell(**environment)):
            assert task == environment | {"FLUX_TASK_RANK": str(number)}


def runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("hook", ["prolog", "epilog", "task-prolog"])
def test_a_hanging_hook_is_killed_within_its_limit_and_the_script_ends_with_status_0(tmp_path: Path, hook: str) -> None:
    for folder in ("hooks", "slurm"):
        shutil.copytree(REPOSITORY / "deploy" / folder, tmp_path / folder)
    note, pids = tmp_path / "note", tmp_path / "pids"
    noted(tmp_path / "hooks/bounded", note)
    (tmp_path / "hooks.conf").write_text(f"sleep 1000 &\necho $$ $! > {pids}.part\nmv {pids}.part {pids}\nwait\n")
    environment = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_JOB_UID": "65534", "SLURM_JOB_GID": "65534"}
    command = [tmp_path / "slurm" / hook]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # The only thing that can hang is limited, and the limit is what has ended it.
    (line,) = note.read_text().splitlines()
    *options, status = line.split()
    assert options == ["-s", "KILL", f"{limit(REPOSITORY / 'deploy/hooks/bounded'):g}"]
    assert status == "137"
    (promised,) = re.findall(r"script ends with 0, within (\d+) seconds", GUIDE.read_text())
    assert float(options[-1]) < float(promised)
    # With all that it has started, unless it was killed before that.
    left = [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
    wait_until(lambda: not any(map(runs, left)), f"{left} are gone")


class Pbs(types.ModuleType):
    """Stands for the module that PBS gives its hooks."""

    EXECJOB_BEGIN, EXECJOB_END, EXECJOB_LAUNCH, LOG_WARNING = 1, 2, 3, 4

    def __init__(self, kind: int, environment: dict[str, str]) -> None:
        super().__init__("pbs")
        job = types.SimpleNamespace(
            id="7.server", euser=pwd.getpwuid(os.getuid()).pw_name, Job_Owner="", Account_Name="physics", queue="q",
            run_count=2,
        )  # fmt: skip
        self.log: list[str] = []
        self.accepted = 0
        self.found = types.SimpleNamespace(type=kind, job=job, env=environment, accept=self._accept)

    def event(self) -> types.SimpleNamespace:
        return self.found

    def get_local_nodename(self) -> str:
        return "n1"

    def logmsg(self, level: int, text: str) -> None:
        self.log.append(text)

    def _accept(self) -> None:
        self.accepted += 1


@pytest.fixture
def pbs_hook(node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, dict[str, str]], Pbs]:
    source = (node.etc / "pbs/barograph_hook.py").read_text().replace("/etc/barograph", str(node.etc))
    assert limit(REPOSITORY / "deploy/hooks/bounded") < float(re.findall(r"^SECONDS = (\S+)$", source, re.M)[0])
    source = re.sub(r"^SECONDS = \S+$", "SECONDS = 120", source, flags=re.M)

    def run(kind: int, environment: dict[str, str]) -> Pbs:
        pbs = Pbs(kind, environment)
        monkeypatch.setitem(sys.modules, "pbs", pbs)
        exec(compile(source, "barograph_hook.py", "exec"), {})
        return pbs

    return run


def test_pbs_begins_launches_and_ends_jobs(node: Node, pbs_hook: Callable[[int, dict[str, str]], Pbs]) -> None:
    environment = {"PBS_JOBID": "7.server"}
    for kind in (Pbs.EXECJOB_BEGIN, Pbs.EXECJOB_LAUNCH, Pbs.EXECJOB_END):
        pbs = pbs_hook(kind, environment)
        assert (pbs.log, pbs.accepted) == ([], 1)
    assert environment["BAROGRAPH_RING_DIR"] == f"{node.job('pbs-7.server@n1')}/1.0"
    assert environment["LD_PRELOAD"] == str(shim.library())
    assert "PBS_ACCOUNT=physics\n" in node.sidecar()
    assert not (node.active / "pbs-7.server@n1").exists()


def test_pbs_reads_of_a_hook_no_more_than_it_may_print(
    node: Node, pbs_hook: Callable[[int, dict[str, str]], Pbs]
) -> None:
    (node.etc / "hooks/bounded").write_text("printf 'A='; exec head -c 100000000 /dev/zero | tr '\\0' x")
    environment = {"PBS_JOBID": "7.server"}
    pbs = pbs_hook(Pbs.EXECJOB_LAUNCH, environment)
    assert (pbs.log, pbs.accepted, len(environment.get("A", ""))) == ([], 1, 2**16 - 2)


def test_a_failing_pbs_hook_does_not_stop_the_job(node: Node, pbs_hook: Callable[[int, dict[str, str]], Pbs]) -> None:
    shutil.rmtree(node.etc / "hooks")
    pbs = pbs_hook(Pbs.EXECJOB_BEGIN, {})
    assert pbs.accepted == 1


PROJECT = """\
mount --make-rprivate / && cd "$1" || exit
{ cat /etc/passwd; echo "probe:x:54321:54321::/:/bin/sh"; } > passwd
{ cat /etc/group; echo "probe:x:54321:"; echo "project:x:54322:probe"; } > group
mount --bind passwd /etc/passwd && mount --bind group /etc/group || exit
mkdir project && echo steps > project/input && chown -R 0:54322 project && chmod 2770 project && chmod 640 project/input
exec sh "$2" 54321 54321 cat "$1/project/input"
"""
"""An input in a folder that a project shares, read as a sidecar of one of its users."""


@needs_root
def test_a_sidecar_reads_what_its_user_reads_by_a_group(node: Node, open_folder: Path) -> None:
    words = ["unshare", "--mount", "sh", "-c", PROJECT, "sh", str(open_folder), str(node.etc / "hooks/as-user")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("steps\n", "")


HOSTILE_PRELOAD = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void note(void) {
    FILE *file = fopen("%s", "a");
    if (file) { fprintf(file, "%%d\\n", (int)getuid()); fclose(file); }
}
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can read, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="barograph-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0 and not os.environ.get("CI"), reason="needs root, whose rights are to be dropped")
def test_nothing_in_the_environment_of_a_pbs_job_is_executed_as_root(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, nobody = Node(open_folder / "node"), pwd.getpwnam("nobody")
    bin_, note, library = open_folder / "bin", open_folder / "note", open_folder / "evil.so"
    bin_.mkdir()
    note.touch()
    note.chmod(0o666)
    (open_folder / "evil.c").write_text(HOSTILE_PRELOAD % note)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, open_folder / "evil.c"], check=True, timeout=120)
    for name in ("id", "setpriv", "sh", "timeout", "mkdir", "flock", "python3", "systemd-run"):
        (bin_ / name).write_text(f"#!/bin/sh\n/usr/bin/id -u >> {note}\n")
        (bin_ / name).chmod(0o755)
    environment = {
        "PBS_JOBID": "7.server", "PATH": f"{bin_}:{os.environ['PATH']}", "LD_PRELOAD": str(library),
        "LD_LIBRARY_PATH": str(bin_), "BASH_ENV": str(bin_ / "id"), "ENV": str(bin_ / "id"), "PYTHONPATH": str(bin_),
    }  # fmt: skip
    source = (node.etc / "pbs/barograph_hook.py").read_text().replace("/etc/barograph", str(node.etc))
    for kind in (Pbs.EXECJOB_BEGIN, Pbs.EXECJOB_LAUNCH, Pbs.EXECJOB_END):
        pbs = Pbs(kind, environment)
        pbs.found.job.euser = nobody.pw_name
        monkeypatch.setitem(sys.modules, "pbs", pbs)
        exec(compile(source, "barograph_hook.py", "exec"), {})
        assert (pbs.log, pbs.accepted) == ([], 1)
    assert set(note.read_text().split()) == {str(nobody.pw_uid)}
