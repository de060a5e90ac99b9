"""`barograph run` as a process: transparent to the command, exact intervals in the log, a message for every failure."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import barograph_agent
from barograph_agent import launch, shim
from barograph_agent.job.identity import Job
from barograph_agent.launch import _unseen, _verdict
from barograph_agent.sidecar.plan import CommandEnd, DeliveryReport, RunOptions
from helpers import mpi as mpis
from helpers.lammps import fluid
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.mpi import Mpi
from helpers.service import NOWHERE, SENTENCE, Node, Oracle, Service, kill, sidecars

PROGRAMS = Path(__file__).with_name("programs")
NONE_SEEN = (
    "barograph: intervals none seen: no process of this command called MPI_Init or MPI_Init_thread "
    "through a shared MPI library, or took two steps of an optimizer of PyTorch"
)
UNREACHED = f"barograph: verdict   unknown: no collector answered at {NOWHERE}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service")) as service, Oracle(service.endpoint):
        yield service


@pytest.fixture
def alone(tmp_path: Path) -> Node:
    """A node without a collector."""
    return Node(tmp_path)


@pytest.fixture
def node(tmp_path: Path, service: Service) -> Node:
    return Node(tmp_path, service.endpoint)


@pytest.fixture(scope="module", params=mpis.PARAMS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return mpis.find(request.param)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("programs")

    def compile_once(mpi: Mpi, name: str, *flags: str) -> Path:
        output = folder / f"{mpi.name}-{name.removesuffix('.c')}"
        return output if output.exists() else mpi.compile(PROGRAMS / name, output, *flags)

    return compile_once


@pytest.fixture(scope="module")
def paced(compiled: Callable[..., Path]) -> Path:
    return compiled(mpis.find("mpich"), "paced.c")


def summary(said: str) -> list[str]:
    """The lines without the value of the runtime and the name of the job."""
    lines = [line for line in said.splitlines() if not line.startswith("barograph: job       local/")]
    return [re.sub(r"runtime   \d+\.\d\d s", "runtime   T s", line) for line in lines]


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -TERM $$", 143), ("exit 255", 255)],
)
def test_the_exit_status_is_the_commands_own(alone: Node, script: str, status: int) -> None:
    done = alone.run("sh", "-c", script, drain=0)
    assert (done.returncode, done.stdout) == (status, "")
    assert summary(done.stderr) == [NONE_SEEN, "barograph: runtime   T s", UNREACHED]


def test_input_output_and_arguments_are_passed_through(alone: Node) -> None:
    script = 'cat; echo "$0|$1|$2"; echo loud >&2'
    done = alone.run("sh", "-c", script, "a b", "--", "--app", drain=0, input="from\0outside\n")
    assert done.stdout == "from\0outside\na b|--|--app\n"
    assert summary(done.stderr) == ["loud", NONE_SEEN, "barograph: runtime   T s", UNREACHED]


def test_a_command_that_cannot_be_started_exits_as_in_a_shell(alone: Node, tmp_path: Path) -> None:
    text, broken, orphan = tmp_path / "text", tmp_path / "broken", tmp_path / "orphan"
    text.write_text("#!/bin/sh\n")
    broken.write_bytes(b"\x7fELF and nothing else")
    orphan.write_text("#!/no/such/interpreter\n")
    for path in (broken, orphan):
        path.chmod(0o755)
    wanted = "expected an executable program"
    cases = {
        "no-such-program": (127, "command 'no-such-program' not found in PATH, expected a program to run"),
        "./no/such/program": (127, "command './no/such/program' not found, expected a program to run"),
        str(text): (126, f"command '{text}' is not executable, {wanted}"),
        str(tmp_path): (126, f"command '{tmp_path}' is a directory, {wanted}"),
        str(broken): (126, f"command '{broken}' cannot be run: Exec format error, {wanted}"),
        str(orphan): (126, f"command '{orphan}' cannot be run: No such file or directory, {wanted}"),
    }
    for command, (status, words) in cases.items():
        done = alone.run(command)
        assert (done.returncode, done.stdout, done.stderr) == (status, "", f"barograph: {words}\n")
    assert alone.waiting() == []
    assert not alone.rings.exists() or list(alone.rings.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--app", "a"], "COMMAND is missing, expected a program to run after --"),
        (["--app", "a b", "true"], "app is 'a b', expected 1-40 characters from A-Z a-z 0-9 _ . : @ / + -"),
        (["--param", "x", "true"], "--param is x, expected NAME=VALUE, such as x=4"),
        (["--drain", "nan", "true"], "argument --drain: 'nan', expected seconds, 0 or more"),
        (["--drain", "-1", "true"], "argument --drain: '-1', expected seconds, 0 or more"),
        (["--drain", "inf", "true"], "argument --drain: 'inf', expected seconds, 0 or more"),
        (["--drain", "soon", "true"], "argument --drain: 'soon', expected seconds, 0 or more"),
    ],
)
def test_a_wrong_option_is_a_usage_error(alone: Node, words: list[str], line: str) -> None:
    done = alone.barograph("run", *words)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"barograph run: error: {line}")


def test_the_exit_status_is_the_commands_own_where_the_end_of_the_watch_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(guard: launch.SidecarGuard, end: object) -> None:
        assert guard._process.stdin is not None
        guard._process.stdin.close()
        guard.cancel()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(launch.SidecarGuard, "finish", fails)
    out, job = io.StringIO(), Job("lab", "1", 0, "0", "ada", "n1", "app", {})
    environment = {**os.environ, "BAROGRAPH_RINGS": str(tmp_path / "r"), "BAROGRAPH_SPOOL": str(tmp_path / "s")}
    assert launch.run(["/bin/sh", "-c", "exit 3"], job, RunOptions(NOWHERE), environment, out) == 3
    assert "no summary: [Errno 24] Too many open files" in out.getvalue()


def test_a_program_linked_to_the_address_sanitizer_starts_when_watched(alone: Node, tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text('#include <stdio.h>\nint main(void) { puts("started"); return 4; }\n')
    built = subprocess.run(["cc", "-fsanitize=address", source, "-o", program], capture_output=True, check=False)
    assert built.returncode == 0, built.stderr
    alone.environment["ASAN_OPTIONS"] = "detect_leaks=0"
    run = alone.start(str(program), drain=0)
    told, complaint = run.communicate()
    assert (run.returncode, told) == (4, "started\n"), complaint


def test_the_shim_precedes_the_users_preloads_in_the_command_only(alone: Node, tmp_path: Path) -> None:
    script = (
        "import os; print(os.environ['LD_PRELOAD']); print(os.environ['BAROGRAPH_RING_DIR'], flush=True); "
        "import sys; sys.stdin.read()"
    )
    alone.environment["LD_PRELOAD"] = "/no/such.so"
    run = alone.start(sys.executable, "-c", script, drain=0, stdin=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == f"{shim.library()} /no/such.so\n"
    rings = Path(run.stdout.readline().strip())
    assert rings.parent == alone.rings
    for directory in (rings, rings.parent, *alone.waiting()):
        assert directory.stat().st_mode & 0o777 == 0o700
    wait_until(lambda: len(sidecars(alone.spools)) == 1, "the sidecar is there")
    (sidecar,) = sidecars(alone.spools)
    for pid in (run.pid, sidecar):
        assert b"libbarograph" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert "libbarograph" not in Path(f"/proc/{pid}/maps").read_text()
    run.communicate()
    assert run.returncode == 0


def test_if_disabled_the_command_runs_unwatched(alone: Node) -> None:
    alone.environment["BAROGRAPH_DISABLE"] = "1"
    done = alone.run("sh", "-c", 'echo "[$LD_PRELOAD]"; exit 4')
    assert (done.returncode, done.stdout, done.stderr) == (4, "[]\n", "")
    assert alone.waiting() == []
    alone.environment["BAROGRAPH_DISABLE"] = "0"
    assert "libbarograph.so" in alone.run("sh", "-c", 'echo "[$LD_PRELOAD]"', drain=0).stdout


@pytest.mark.parametrize("variable", ["BAROGRAPH_SPOOL", "BAROGRAPH_RINGS"])
def test_without_usable_directories_the_command_runs_unwatched_with_a_message(alone: Node, variable: str) -> None:
    alone.environment[variable] = "/dev/null/here"
    done = alone.run("sh", "-c", 'echo "[$LD_PRELOAD]"; exit 5')
    assert (done.returncode, done.stdout) == (5, "[]\n")
    assert done.stderr == (
        "barograph: not watching this run: /dev/null/here: Not a directory, "
        "expected a directory that this user can write\n"
    )


@pytest.mark.parametrize("folder", ["with space", "with:colon"])
def test_a_shim_path_invalid_in_ld_preload_leaves_the_command_unwatched(
    alone: Node, tmp_path: Path, folder: str
) -> None:
    package = Path(barograph_agent.__file__).parent
    installed = tmp_path / folder / package.name
    shutil.copytree(package, installed, ignore=shutil.ignore_patterns("__pycache__"))
    main = "import sys; sys.path.insert(0, sys.argv.pop(1)); from barograph.cli import main; sys.exit(main())"
    words = ["run", "--", "sh", "-c", 'echo "[$LD_PRELOAD]"; exit 6']
    command = [sys.executable, "-c", main, str(installed.parent), *words]
    done = subprocess.run(
        command, env=alone.environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (6, "[]\n")
    assert done.stderr == (
        f"barograph: not watching this run: the shim is '{installed}/libbarograph.so', "
        "expected a path without space or colon, which cut LD_PRELOAD\n"
    )
    assert alone.waiting() == []


def test_an_undecodable_parameter_leaves_the_command_unwatched(alone: Node) -> None:
    done = alone.barograph("run", "--param", os.fsdecode(b"x=\xff"), "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    assert done.stderr.startswith("barograph: not watching this run: 'utf-8' codec can't encode ")


@contextmanager
def inherited(number: signal.Signals, disposition: signal.Handlers) -> Iterator[None]:
    """Signals ignored in a new process: in background jobs some are."""
    before = signal.signal(number, disposition)
    try:
        yield
    finally:
        signal.signal(number, before)


WAIT = "trap 'exit 42' {trap}; echo ready; while :; do sleep 0.02; done"


@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1", "USR2"])
def test_signals_reach_the_command(alone: Node, name: str) -> None:
    with inherited(signal.Signals[f"SIG{name}"], signal.SIG_DFL):
        run = alone.start("sh", "-c", WAIT.format(trap=name), drain=0)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.Signals[f"SIG{name}"])
    run.communicate(timeout=DEADLINE_SECONDS)
    assert run.returncode == 42


def test_ctrl_c_is_handled_by_the_command_alone(alone: Node) -> None:
    with inherited(signal.SIGINT, signal.SIG_DFL):
        run = alone.start("sh", "-c", WAIT.format(trap="INT"), drain=0, start_new_session=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=DEADLINE_SECONDS)
    assert run.returncode == 42
    assert said.splitlines()[0] == NONE_SEEN


def test_signals_during_the_start_are_forwarded_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        signal.raise_signal(signal.SIGTERM)
        return popen(*arguments, **named)

    monkeypatch.setattr(launch.subprocess, "Popen", interrupted)
    assert launch._run_command(["sleep", "60"], os.environ, None)[0] == 128 + signal.SIGTERM


def test_an_ignored_signal_stays_ignored(alone: Node) -> None:
    script = "echo ready; kill -HUP $$; read line; exit 8"
    with inherited(signal.SIGHUP, signal.SIG_IGN):
        run = alone.start("sh", "-c", script, drain=0, stdin=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGHUP)
    run.communicate("line\n", timeout=DEADLINE_SECONDS)
    assert run.returncode == 8


def test_ctrl_c_during_final_delivery_ends_the_wait(alone: Node) -> None:
    with inherited(signal.SIGINT, signal.SIG_DFL):
        run = alone.start("sh", "-c", "exit 9", drain=60)
    wait_until(lambda: any((path / "end.json").exists() for path in alone.waiting()), "the command has ended")
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=DEADLINE_SECONDS)
    assert run.returncode == 9
    last = said.splitlines()[-1]
    assert last == "barograph: interrupted; the sidecar continues delivery in the background"
    for pid in sidecars(alone.spools):
        kill(pid)


def test_modules_in_the_working_directory_do_not_shadow_those_of_the_sidecar(
    node: Node, service: Service, paced: Path, tmp_path: Path
) -> None:
    for name in ("random", "struct", "signal", "zmq", "barograph_agent"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not me')")
    words = ["run", "--app", "names", "--drain", "60", "--", str(paced), "5", "0", "progress"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "barograph", *words],
        cwd=tmp_path, env=node.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert summary(done.stderr)[0] == "barograph: intervals 5 seen on 1 rank, 5 stored"
    assert service.indices("names") == list(range(5))


def test_a_run_ends_with_its_verdict_and_its_job_and_leaves_no_files(
    node: Node, service: Service, paced: Path, tmp_path: Path
) -> None:
    program = [paced, "1234", "0", tmp_path / "progress"]
    run = node.start("sh", "-c", '"$@" && read line', "sh", *program, app="lines", stdin=subprocess.PIPE)
    # The end of a run waits briefly for its verdict.
    wait_until(lambda: "lines" in [row["app"] for row in service.rows("jobs")], "the job is known")
    wait_until(lambda: service.rows("scores", "lines"), "there is a verdict")
    out, said = run.communicate("line\n", timeout=DEADLINE_SECONDS)
    assert (run.returncode, out) == (0, "")
    assert summary(said) == [
        "barograph: intervals 1,234 seen on 1 rank, 1,234 stored",
        "barograph: runtime   T s",
        f"barograph: verdict   {SENTENCE}",
    ]
    assert said.splitlines()[-1] == f"barograph: job       {service.job('lines')}"
    assert service.indices("lines") == list(range(1234))
    (end,) = service.rows("runs", "lines")
    assert (end["intervals"], end["dropped"], end["exit_status"]) == (1234, 0, 0)
    assert node.waiting() == []
    assert list(node.rings.iterdir()) == []


def test_the_last_line_has_the_address_of_the_page(alone: Node) -> None:
    alone.environment["BAROGRAPH_PAGE"] = "https://barograph.example/"
    last = alone.run("true", drain=0).stderr.splitlines()[-1]
    assert re.fullmatch(r"barograph: job       (local/\S+), https://barograph\.example/job/\1", last)


def test_the_wait_for_a_missing_collector_is_announced(alone: Node) -> None:
    said = alone.run("true", drain=0.2).stderr.splitlines()
    assert said[0].startswith(f"barograph: waiting up to 0.2 s for the collector at {NOWHERE}, where nothing listens")


def test_a_command_that_failed_is_not_said_to_lack_a_history() -> None:
    report = DeliveryReport(0, 0, 0, 0, 0, reached=True, verdict="unknown: 0 healthy runs in the history, 1 needed")
    said = _verdict(report, CommandEnd(0.0, 1.0, 3), NOWHERE)
    assert said == "unknown: the command failed with exit status 3, and is compared with no other run"
    assert _verdict(report, CommandEnd(0.0, 1.0, 0), NOWHERE) == report.verdict


def test_ranks_of_a_command_that_failed_may_have_ended_before_they_were_seen() -> None:
    report = DeliveryReport(4, 0, 0, 0, 0, reached=True, verdict="", unseen_ranks=1)
    assert _unseen(report, CommandEnd(0.0, 1.0, 3)).startswith(
        "1 of 4 ranks were not seen: they ended before MPI_Init was over, or on their nodes "
    )
    assert _unseen(report, CommandEnd(0.0, 1.0, 0)).startswith("1 of 4 ranks were not seen: on their nodes ")


@pytest.mark.process
def test_without_a_collector_intervals_are_spooled_and_delivered_by_the_next_run(
    node: Node, service: Service, paced: Path, tmp_path: Path
) -> None:
    node.environment["BAROGRAPH_COLLECTOR"] = NOWHERE
    for app in ("away-1", "away-2"):
        done = node.run(paced, "50", "100", tmp_path / "progress", app=app, drain=0)
        assert done.returncode == 0
        place = next(path for path in node.waiting() if str(path) in done.stderr)
        assert summary(done.stderr) == [
            f"barograph: intervals 50 seen on 1 rank, 0 stored, 50 spooled in {place} until the collector is back",
            "barograph: runtime   T s",
            UNREACHED,
        ]
    assert list(node.rings.iterdir()) == []  # rings occupy memory, the spool does not
    listed = node.barograph("spool")
    assert listed.returncode == 0
    sizes = [sum(file.stat().st_size for file in path.glob("*.seg")) for path in node.waiting()]
    lines = [f"{path}  {size:,} bytes" for path, size in zip(node.waiting(), sizes, strict=True)]
    assert listed.stdout.splitlines() == [*lines, "2 runs wait"]
    node.environment["BAROGRAPH_COLLECTOR"] = service.endpoint
    assert summary(node.run("true", app="away-3").stderr)[0] == NONE_SEEN
    wait_until(lambda: node.waiting() == [], "the next run's sidecar has delivered everything")
    for app in ("away-1", "away-2"):
        assert service.indices(app) == list(range(50))
        assert len(service.rows("runs", app)) == 1
    assert node.barograph("spool").stdout == "nothing is waiting\n"


@pytest.mark.process
def test_the_spool_command_delivers_spools_once(node: Node, service: Service, paced: Path, tmp_path: Path) -> None:
    node.run(paced, "70", "0", tmp_path / "progress", app="sent", drain=0, env=node.environment | {
        "BAROGRAPH_COLLECTOR": NOWHERE})  # fmt: skip
    vain = node.barograph("spool", "--send", "--collector", NOWHERE, "--seconds", "0.2")
    assert (vain.returncode, vain.stdout) == (69, "")
    assert vain.stderr == f"barograph spool: 1 runs not delivered in 0.2 s to {NOWHERE}\n"
    done = node.barograph("spool", "--send")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"delivered  {service.job('sent')}\n"
    assert service.indices("sent") == list(range(70))
    assert node.waiting() == []
    again = node.barograph("spool", "--send")
    assert (again.returncode, again.stdout, again.stderr) == (0, "nothing is waiting\n", "")


def balanced(service: Service, app: str, count: int, ranks: int, done: Any) -> None:
    """The log has `count` intervals of this run, each once, and all counts agree."""
    assert done.returncode == 0, done.stderr
    assert f"barograph: intervals {count:,} seen on {ranks} ranks, {count:,} stored" in done.stderr
    assert service.indices(app) == list(range(count))
    (job,), (end,) = service.rows("jobs", app), service.rows("runs", app)
    assert (job["ranks"], end["intervals"], end["dropped"]) == (ranks, count, 0)
    known = {row["class_id"] for row in service.rows("sites")}
    assert {row["class_id"] for row in service.rows("blocks", app)} <= known


def test_rows_in_the_log_equal_what_an_independent_witness_counts_in_a_c_program(
    mpi: Mpi, node: Node, service: Service, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    node.environment |= {
        "LD_PRELOAD": str(compiled(mpi, "witness.c", "-shared", "-fPIC")),
        "WITNESS": str(tmp_path / "count"),
    }
    app = f"c-{mpi.name}"
    done = node.run(*mpi.command(2, [compiled(mpi, "collectives.c"), "300", "finalize"]), app=app)
    count = int((tmp_path / "count").read_text())
    assert count == 11 * 300
    balanced(service, app, count, 2, done)


@pytest.mark.process
def test_the_application_is_named_after_its_executable_for_any_launcher_options(
    node: Node, service: Service, compiled: Callable[..., Path]
) -> None:
    mpi = mpis.find("openmpi")
    command = mpi.command(1, [compiled(mpi, "collectives.c"), "3", "finalize"])
    assert command[1:3] == ["--bind-to", "none"]
    done = node.barograph("run", "--drain", "60", "--", *command)
    assert done.returncode == 0, done.stderr
    assert service.job("openmpi-collectives").startswith("local/")


def test_what_was_asked_for_is_in_the_log_as_digests(
    mpi: Mpi, node: Node, service: Service, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program, given = compiled(mpi, "paced.c"), tmp_path / "given"
    for content, pause in (("a", "20000"), ("b", "20001")):
        given.write_text(content)
        app, progress = f"work-{mpi.name}-{content}", tmp_path / f"progress-{content}"
        variables = {"OMP_NUM_THREADS": "2", "PACED_UNTIL": str(until := tmp_path / f"until-{content}")}
        command = mpi.command(2, [program, "1000000", pause, progress], variables)
        with given.open() as stdin:
            run = node.start(*command, app=app, stdin=stdin, cwd=tmp_path)
        wait_until(lambda app=app: app in [row["app"] for row in service.rows("jobs")], "the job is known")
        wait_until(lambda app=app: service.rows("works", app), "what was asked for is known")
        until.touch()
        run.communicate(timeout=DEADLINE_SECONDS)
    one, other = (service.rows("works", f"work-{mpi.name}-{content}")[0] for content in "ab")
    assert (one["ranks"], one["ranks_per_node"], one["threads"]) == (2, 2, 2)
    assert one["program"] == other["program"] != one["executable"] == other["executable"]
    words = [json.loads(row["words"]) for row in (one, other)]
    assert [a == b for a, b in zip(*words, strict=True)] == [True, False, False]
    # The program reads it through mpiexec.
    inputs = [json.loads(row["inputs"]) for row in (one, other)]
    assert [(only["word"], only["bytes"]) for (only,) in inputs] == [(-1, 1), (-1, 1)]
    assert inputs[0][0]["digest"] != inputs[1][0]["digest"]
    # Looked for before the program has created it, or after.
    assert one["reason"] in ("", "input 2: written since the program started")
    assert "paced" not in str(one)


@pytest.mark.parametrize("mpi", mpis.WHEELS, indirect=True)
def test_rows_in_the_log_equal_the_collectives_of_an_mpi4py_program(mpi: Mpi, node: Node, service: Service) -> None:
    assert mpi.python is not None
    app = f"mpi4py-{mpi.name}"
    done = node.run(*mpi.command(2, [mpi.python, PROGRAMS / "collectives.py", "200", "finalize"]), app=app)
    balanced(service, app, 11 * 200, 2, done)


@pytest.mark.parametrize("name", mpis.LAMMPS_PARAMS)
def test_rows_in_the_log_equal_what_the_witness_counts_in_lammps(
    name: str, node: Node, service: Service, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    mpi = mpis.find(name)
    lammps, environment = mpi.lammps()
    (tmp_path / "in.lj").write_text(fluid(6, 400))
    node.environment |= environment | {
        "LD_PRELOAD": str(compiled(mpi, "witness.c", "-shared", "-fPIC")),
        "WITNESS": str(tmp_path / "count"),
    }
    app = f"lammps-{name}"
    done = node.run(*mpi.command(2, [lammps, "-in", tmp_path / "in.lj", "-log", "none"]), app=app)
    count = int((tmp_path / "count").read_text())
    assert count > 400
    balanced(service, app, count, 2, done)


@pytest.mark.process
def test_a_full_ring_counts_drops_and_never_blocks_the_program(
    node: Node, service: Service, paced: Path, tmp_path: Path
) -> None:
    node.environment["BAROGRAPH_RING_RECORDS"] = "64"
    node.environment["BAROGRAPH_BUDGET"] = "1000000"
    done = node.run(paced, "20000", "0", tmp_path / "progress", app="small")
    assert done.returncode == 0
    found = re.search(r"intervals 20,000 seen on 1 rank, ([\d,]+) stored, ([\d,]+) dropped$", done.stderr, re.MULTILINE)
    assert found, done.stderr
    stored, dropped = (int(number.replace(",", "")) for number in found.groups())
    assert stored + dropped == 20000
    assert stored >= 64
    indices = service.indices("small")
    assert len(indices) == len(set(indices)) == stored
    assert set(indices) <= set(range(20000))
    assert service.rows("runs", "small")[0]["dropped"] == dropped


def test_rules_apply_to_a_run_and_invalid_rules_are_one_line(node: Node, service: Service) -> None:
    rules = node.spools.with_name("rules.toml")
    rules.write_text("[[app]]\nmatch='^rules-'\nname='ruled'\n[[param]]\nargv='-x ([0-9]+)'\nname='x'\n")
    node.environment["BAROGRAPH_RULES"] = str(rules)
    script = node.spools.with_name("rules-script.sh")
    script.write_text("exit 0\n")
    done = node.barograph("run", "--", "sh", script, "-x", "7", "--password", "s3cr3t")
    assert done.returncode == 0
    (job,) = [row for row in service.rows("jobs") if row["app"] == "ruled"]
    assert job["params"] == '{"x":"7"}'
    rules.write_text("[[app]]\n")
    done = node.barograph("run", "--drain", "0", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    line = f"barograph: rules {rules}: Object missing required field `match` - at `$.app[0]`, expected rules in TOML"
    assert done.stderr.splitlines()[0] == f"{line}; running without them"
    assert summary(done.stderr)[1] == NONE_SEEN


@pytest.mark.process
def test_beyond_the_budget_every_interval_is_in_a_block(
    node: Node, service: Service, compiled: Callable[..., Path]
) -> None:
    mpi = mpis.find("mpich")
    node.environment["BAROGRAPH_BUDGET"] = "many"
    program = compiled(mpi, "paced.c")
    progress = node.spools.with_name("progress")
    words = ["--app", "reduced", "--drain", "60", "--budget", "2", "--"]
    done = node.barograph("run", *words, *mpi.command(2, [program, "400", "5000", progress]))
    assert done.returncode == 0, done.stderr
    blocks, ranks = service.rows("blocks", "reduced"), service.rows("node_blocks", "reduced")
    assert sum(row["count"] for row in blocks) == 400 > len(blocks)
    # A burst of 20 s at first; then the budget, or one row per class at each of five steps per second.
    seconds = max(row["ended_at"] for row in blocks) - min(row["ended_at"] for row in blocks)
    assert len(blocks) <= 2 * 20 + 5 * (seconds + 1)
    assert [row["count"] for row in blocks if row["first_index"] == 0] == [1]  # the first class has one interval
    assert sum(row["count"] for row in ranks) == 400
    assert {row["ranks"] for row in ranks} == {2}
    assert summary(done.stderr)[0] == "barograph: intervals 400 seen on 2 ranks, 400 stored"
    told = node.barograph("run", "--drain", "0", "--", "true").stderr.splitlines()[0]
    assert told == "barograph: BAROGRAPH_BUDGET is 'many', expected rows a second, above 0 and at most 1e+06; using 250"


def test_programs_one_after_the_other_and_side_by_side_in_a_script_are_seen(alone: Node, paced: Path) -> None:
    mpiexec = mpis.find("mpich").mpiexec
    script = f"""
        {mpiexec} -n 2 {paced} 10 1000 /dev/null & {mpiexec} -n 1 {paced} 11 1000 /dev/null & wait
        {mpiexec} -n 1 {paced} 12 1000 /dev/null
    """
    done = alone.run("sh", "-c", script, drain=0)
    assert done.returncode == 0
    assert "barograph: intervals 33 seen on" in done.stderr


def test_processes_that_python_has_started_are_seen(alone: Node, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import multiprocessing

def work(barriers):
    from mpi4py import MPI
    for _ in range(barriers):
        MPI.COMM_WORLD.Barrier()

if __name__ == "__main__":
    for method, barriers in (("fork", 5), ("spawn", 6), ("forkserver", 7)):
        process = multiprocessing.get_context(method).Process(target=work, args=(barriers,))
        process.start()
        process.join()
        assert process.exitcode == 0
""")
    done = alone.run(sys.executable, program, drain=0)
    assert done.returncode == 0
    assert "barograph: intervals 18 seen on" in done.stderr


def test_applications_not_selected_are_not_watched(alone: Node) -> None:
    for apps, app, words in [
        ("lmp|xhpcg", "lmp", "barograph: verdict"),
        ("lmp|xhpcg", "lmp2", ""),
        ("(", "lmp", "barograph: not watching this run: BAROGRAPH_APPS is '(': missing ), unterminated subpattern"),
    ]:
        alone.environment["BAROGRAPH_APPS"] = apps
        done = alone.run("sh", "-c", "exit 4", app=app, drain=0)
        assert done.returncode == 4
        assert words in done.stderr
        assert words or not done.stderr


def test_the_runtime_is_exact_on_a_kernel_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def old(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    for kernel in ("new", "old"):
        if kernel == "old":
            monkeypatch.setattr(os, "pidfd_open", old)
        status, runtime = launch._run_command(["sh", "-c", "exec sleep 0.3"], os.environ, None)
        assert status == 0
        assert runtime >= 0.3
        status, _ = launch._run_command(["sh", "-c", "kill -KILL $$"], os.environ, None)
        assert status == 137
