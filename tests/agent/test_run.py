"""`barograph run` as a process: transparent to the command, exact intervals in the log, a message for every failure."""

from __future__ import annotations

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

from barograph_agent import launch, shim
from helpers import mpi as mpis
from helpers.lammps import fluid
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.mpi import Mpi
from helpers.service import NOWHERE, SENTENCE, Node, Service, kill, sidecars

PROGRAMS = Path(__file__).with_name("programs")
NONE_SEEN = (
    "barograph: intervals none seen: no MPI_Init through a shared MPI library, and no step of a PyTorch optimizer"
)
UNREACHED = f"barograph: verdict   unknown: no collector answered at {NOWHERE}"


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


def test_a_command_that_cannot_be_started_exits_as_in_a_shell(alone: Node, tmp_path: Path) -> None:
    text, broken, orphan = tmp_path / "text", tmp_path / "broken", tmp_path / "orphan"
    text.write_text("#!/bin/sh\n")
    broken.write_bytes(b"\x7fELF and nothing else")
    orphan.write_text("#!/no/such/interpreter\n")
    for path in (broken, orphan):
        path.chmod(0o755)
    cases = {
        "no-such-program": (127, "No such file or directory"),
        "./no/such/program": (127, "No such file or directory"),
        str(text): (126, "Permission denied"),
        str(tmp_path): (126, "Permission denied"),
        str(broken): (126, "Exec format error"),
        str(orphan): (126, "No such file or directory"),
    }
    for command, (status, words) in cases.items():
        done = alone.run(command)
        complaint = f"barograph: command {command!r}: {words}, expected an executable program\n"
        assert (done.returncode, done.stdout, done.stderr) == (status, "", complaint)
    assert alone.waiting() == []
    assert not alone.rings.exists() or list(alone.rings.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--app", "a"], "COMMAND is missing, expected a program to run after --"),
        (["--app", "a b", "true"], "app is 'a b', expected 1-40 characters from A-Z a-z 0-9 _ . : @ / + -"),
        (["--param", "x", "true"], "--param is x, expected NAME=VALUE, such as x=4"),
        (["--drain", "nan", "true"], "argument --drain: 'nan', expected seconds, 0 or more"),
        (["--drain", "soon", "true"], "argument --drain: 'soon', expected seconds, 0 or more"),
    ],
)
def test_a_wrong_option_is_a_usage_error(alone: Node, words: list[str], line: str) -> None:
    done = alone.barograph("run", *words)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"barograph run: error: {line}")


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
    sizes = [sum(file.stat().st_size for file in path.glob("spool.sqlite*")) for path in node.waiting()]
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


def test_a_run_of_two_programs_has_the_name_of_rank_0s_and_the_words_of_both_whatever_their_titles(
    node: Node, service: Service, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    titled = compiled(mpis.find("mpich"), "titled.c")
    ocean, ice = (shutil.copy(titled, tmp_path / name) for name in ("ocean.x", "ice.x"))
    for word in ("coarse", "coarse", "fine"):
        command = mpis.find("mpich").command(1, [ocean, "20", ":", "-n", "1", ice, "20", word])
        done = node.barograph("run", "--drain", "60", "--", *command)
        assert done.returncode == 0, done.stderr
    assert [row["app"] for row in service.rows("jobs") if row["app"] in ("ocean.x", "ice.x")] == ["ocean.x"] * 3
    jobs = [row["job"] for row in service.rows("jobs") if row["app"] == "ocean.x"]
    first, again, other = (row["words"] for row in service.rows("works") if row["job"] in jobs)
    assert first == again != other


def test_what_was_asked_for_is_in_the_log_as_digests(
    mpi: Mpi, node: Node, service: Service, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program = compiled(mpi, "paced.c")
    for content, pause in (("a", "20000"), ("b", "20001")):
        app, progress = f"work-{mpi.name}-{content}", tmp_path / f"progress-{content}"
        variables = {"OMP_NUM_THREADS": "2", "PACED_UNTIL": str(until := tmp_path / f"until-{content}")}
        run = node.start(*mpi.command(2, [program, "1000000", pause, progress], variables), app=app, cwd=tmp_path)
        wait_until(lambda app=app: app in [row["app"] for row in service.rows("jobs")], "the job is known")
        wait_until(lambda app=app: service.rows("works", app), "what was asked for is known")
        until.touch()
        run.communicate(timeout=DEADLINE_SECONDS)
    one, other = (service.rows("works", f"work-{mpi.name}-{content}")[0] for content in "ab")
    assert (one["ranks"], one["ranks_per_node"], one["threads"]) == (2, 2, 2)
    assert one["program"] == other["program"] != one["executable"] == other["executable"]
    words = [json.loads(row["words"]) for row in (one, other)]
    assert [a == b for a, b in zip(*words, strict=True)] == [True, False, False]
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
