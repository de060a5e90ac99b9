"""Commands that have not been started: the same evidence as of their processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barograph_agent.system import processes
from barograph_agent.system.system import SYSTEM
from barograph_agent.work.fingerprint import TargetProcess, WorkEvidence, WorkRules, fingerprint
from barograph_agent.work.planned import evidence_of, parse_planned

PATH = "/usr/bin:/bin"


@pytest.mark.parametrize(
    ("command", "program", "arguments", "ranks"),
    [
        ("mpiexec -n 64 sh run.sh in", "sh", ["sh", "run.sh", "in"], 64),
        ("mpirun --np=8 --bind-to core sh in", "sh", ["sh", "in"], 8),
        ("srun --ntasks 16 -N 2 sh in", "sh", ["sh", "in"], 16),
        ("srun sh in", "sh", ["sh", "in"], None),
        ("sh in", "sh", ["sh", "in"], 1),
        ("env A=1 mpiexec -n 2 sh", "sh", ["sh"], 2),
    ],
)
def test_the_program_is_the_first_word_that_can_be_executed_and_is_no_launcher(
    tmp_path: Path, command: str, program: str, arguments: list[str], ranks: int | None
) -> None:
    for name in ("mpiexec", "mpirun", "srun"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    found = parse_planned(command.split(), {"PATH": f"{tmp_path}:{PATH}"})
    assert found is not None
    assert found.program == str(Path(f"/bin/{program}").resolve())
    assert (list(found.arguments), found.ranks) == (arguments, ranks)


def test_a_command_without_a_program_is_none() -> None:
    assert parse_planned(["no-such-program", "4"], {"PATH": PATH}) is None


@pytest.mark.parametrize("script", [[], ["step.py"]])
def test_the_evidence_is_that_of_the_process_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[str]
) -> None:
    """A program that sleeps, with words, an input and threads; or a script that names its interpreter."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.in").write_text("mesh 64 32\n")
    code = "import time; time.sleep(60)"
    (tmp_path / "step.py").write_text(f"#!{sys.executable}\n{code}\n")
    (tmp_path / "step.py").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{PATH}", "OMP_NUM_THREADS": "3"}
    command = [*(script or [sys.executable, "-c", code]), "case.in", "--steps=100"]
    rules = WorkRules("lab", None, numbers=True)
    planned = parse_planned(command, environment)
    assert planned is not None
    expected = evidence_of(planned, environment, rules, SYSTEM)
    with subprocess.Popen(
        [str(tmp_path / script[0]) if script else command[0], *command[1:]], env=environment, stdin=subprocess.DEVNULL
    ) as process:
        try:
            while SYSTEM.processes.command(process.pid)[-1:] != ["--steps=100"]:
                assert process.poll() is None  # between fork and exec
            found = WorkEvidence()
            fingerprint(found, float("inf"), TargetProcess(process.pid, planned.program), rules, SYSTEM)
        finally:
            process.kill()
    names = [name for name in WorkEvidence.__struct_fields__ if name != "platform"]
    assert {name: getattr(found, name) for name in names} == {name: getattr(expected, name) for name in names}
    assert {one.values for one in expected.numbers} == {"100", "64 32"}


def test_a_log_that_grows_in_the_working_folder_is_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for limit in ("MAX_DESCRIPTORS", "MAX_ALL_DESCRIPTORS"):
        monkeypatch.setattr(processes, limit, 10**6)
    (tmp_path / "HPL.dat").write_text("64\n")
    planned = parse_planned(["sh"], {"PATH": PATH})
    assert planned is not None
    folders = []
    with (tmp_path / "daemon.log").open("a") as log:
        for _ in range(2):
            print("a line", file=log, flush=True)
            folders.append(evidence_of(planned, {}, WorkRules("lab", None), SYSTEM).folder)
    assert folders[0] == folders[1]
    assert len(folders[0]) == 1
