"""`barograph doctor`, on this node and with simulated defects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from barograph_agent.deliver import credential
from barograph_agent.doctor import checks as checkup
from barograph_agent.doctor.checks import (
    check_collector,
    check_configuration,
    check_cores,
    check_hooks,
    check_launcher,
    check_rings,
    check_rules,
    check_salt,
    check_shim,
    check_spool,
    check_watching,
)
from barograph_collector.auth import keys
from helpers import mpi as mpis
from helpers.log import DEADLINE_SECONDS, collector_on, wait_until
from helpers.service import NOWHERE, Node, Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service")) as service:
        yield service


def environment(mpi: str) -> dict[str, str]:
    found = mpis.find(mpi)
    return {**os.environ, **mpis.OPENMPI_ENVIRONMENT, "PATH": f"{found.mpiexec.parent}:{os.environ['PATH']}"}


def command(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("name", "kind"), [("mpich", "MPICH"), ("openmpi", "Open MPI")])
def test_the_mpi_in_the_path_is_identified_and_a_one_rank_program_recorded(name: str, kind: str) -> None:
    mpi = environment(name)
    assert check_launcher(mpi) == ("mpi", "ok", f"{mpis.find(name).mpiexec}: {kind}", "")
    watching, clock = check_watching(mpi)
    assert watching == ("watching", "ok", "3 of 3 barriers of a program of one rank were seen", "")
    assert (clock.check, clock.state == "ok") == ("clock", "time stamp counter" in clock.text)


def test_without_a_compiler_mpi4py_runs_the_program(tmp_path: Path) -> None:
    mpi = environment("mpich")
    command(tmp_path, "mpiexec", f'exec {mpis.find("mpich").mpiexec} "$@"')
    watching, _ = check_watching({**mpi, "PATH": str(tmp_path)})
    assert (watching.state, watching.text) == ("ok", "3 of 3 barriers of a program of one rank were seen")


def test_failing_missing_or_preload_dropping_launchers_are_reported(tmp_path: Path) -> None:
    found = {**os.environ, "PATH": str(tmp_path)}
    command(tmp_path, "mpicc", 'printf "#!/bin/sh\\n" > "$2"; /bin/chmod +x "$2"')
    assert check_launcher(found)[:3] == ("mpi", "warn", "no mpiexec in PATH")
    command(tmp_path, "mpiexec", "echo no slots available >&2; exit 7")
    assert next(check_watching(found))[:3] == ("watching", "fail", "a program of one rank failed: no slots available")
    assert check_launcher(found).text == f"{tmp_path}/mpiexec: of an unknown kind"
    command(tmp_path, "mpiexec", "exit 0")
    assert next(check_watching(found)).text == "a program of one rank ran, and none of its barriers were seen"


def test_open_mpi_is_asked_to_run_the_program_for_root_too(tmp_path: Path) -> None:
    command(tmp_path, "mpicc", 'printf "#!/bin/sh\\n" > "$2"; /bin/chmod +x "$2"')
    command(tmp_path, "mpiexec", '[ "$OMPI_ALLOW_RUN_AS_ROOT$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM" = 11 ] || exit 1')
    own = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    assert next(check_watching({**own, "PATH": str(tmp_path)})).text.startswith("a program of one rank ran")


def test_a_missing_or_invalid_shim_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_shim().state == "ok"
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    monkeypatch.setattr(checkup.shim, "library", lambda: broken)
    assert check_shim().state == "fail"
    assert "cannot be preloaded" in check_shim().text


def test_memory_and_disk_are_checked_for_space_type_and_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup.os, "statvfs", lambda path: SimpleNamespace(f_bavail=2**40, f_frsize=1))
    assert check_rings(Path("/dev/shm/not-there-yet")).state == "ok"
    assert check_spool(tmp_path / "not" / "there").state == "ok"
    monkeypatch.setattr(checkup, "_file_system", lambda path: "nfs4")
    found = check_spool(tmp_path)
    assert (found.state, found.advice) == ("fail", "set BAROGRAPH_SPOOL to a directory on a disk of this node")
    assert found.text.endswith("MB free: shared between nodes")
    assert check_rings(tmp_path).state == "warn"
    monkeypatch.setattr(checkup, "_file_system", lambda path: "tmpfs")
    monkeypatch.setattr(checkup.os, "cpu_count", lambda: 4)
    for free, state in ((512, "ok"), (16, "warn"), (1, "fail")):
        monkeypatch.setattr(checkup, "_free", lambda path, free=free: free * 2**20)
        assert check_rings(tmp_path).state == state
    assert check_rings(tmp_path).text.endswith(": 1 MB free, a rank takes up to 0.0 of 6.4 MB")


def test_a_collector_without_an_answer_fails(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "ANSWER_SECONDS", DEADLINE_SECONDS)
    before = len(service.rows("jobs"))
    assert check_collector(service.endpoint, {}).state == "ok"
    assert len(service.rows("jobs")) == before
    monkeypatch.setattr(checkup, "ANSWER_SECONDS", 0.2)
    assert check_collector(NOWHERE, {}).text == f"no answer from {NOWHERE} in 0.2 s"
    assert check_collector("here", {}).text == "collector is 'here', expected tcp://HOST:PORT or ipc://PATH"


def test_the_collector_check_uses_the_key_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "ANSWER_SECONDS", DEADLINE_SECONDS)
    directory, token = tmp_path / "keys", tmp_path / "token"
    keys.init(directory)
    agent, reader = (str(keys.add(directory, role, role)) for role in ("agent", "reader"))
    token.write_bytes(msgspec.json.encode(credential.issue(b"secret", "lab/1", "ada", 2**31)))
    with collector_on(tmp_path / "log.duckdb", keyring=keys.Keyring(directory)) as collector:
        endpoint = collector.endpoint

        def found(**environment: str) -> tuple[str, str]:
            finding = check_collector(endpoint, environment)
            return finding.state, finding.text.partition(" in ")[0]

        assert found(BAROGRAPH_KEY=reader) == ("ok", f"{endpoint} answered reader, as reader,")
        assert found(BAROGRAPH_KEY=agent, BAROGRAPH_TOKEN=str(token)) == ("ok", f"{endpoint} answered agent, as agent,")
        state, text = found(BAROGRAPH_KEY=agent, BAROGRAPH_MUNGE_SOCKET="/nowhere")
        assert (state, "no job token was given either" in text) == ("fail", True)
        assert found(BAROGRAPH_KEY="/nowhere")[1].startswith("key file /nowhere: No such file")
        assert found() == ("fail", f"{endpoint}: of collector and client only one uses keys (BAROGRAPH_KEY)")
        keys.revoke(directory, "reader")
        wait_until(lambda: found(BAROGRAPH_KEY=reader)[0] == "fail", "the key is revoked")


def test_the_salt_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "salt"
    assert check_salt({}).state == "ok"
    assert check_salt({"BAROGRAPH_SALT": str(path)}).text == f"{path}: No such file or directory"
    path.write_text("\n")
    assert check_salt({"BAROGRAPH_SALT": str(path)}).text == f"{path}: empty"
    path.write_text("secret\n")
    finding = check_salt({"BAROGRAPH_SALT": str(path)})
    assert (finding.state, "secret" in finding.text) == ("ok", False)


def test_rules_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text("[[app]]\nmatch='('\nname='a'\n")
    assert check_rules({"BAROGRAPH_RULES": str(path)}).state == "fail"
    path.write_text("[[app]]\nmatch='a'\nname='a'\n")
    assert check_rules({"BAROGRAPH_RULES": str(path)}).text == f"{path}: 1 names, 0 parameters"


def test_hooks_not_executable_by_users_or_without_a_shim_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_hooks(tmp_path).state == "ok"
    (tmp_path / "slurm").mkdir()
    command(tmp_path / "slurm", "task-prolog", "exit 0")
    assert check_hooks(tmp_path).text == f"{tmp_path}/libbarograph.so leads nowhere, so no job is watched"
    (tmp_path / "libbarograph.so").touch()
    assert check_hooks(tmp_path) == ("hooks", "ok", str(tmp_path), "")
    # Root may read all files.
    monkeypatch.setattr(checkup.os, "access", lambda path, mode: False)
    assert check_hooks(tmp_path).text == f"{tmp_path}/slurm/task-prolog cannot be run by this user"


def test_the_command_prints_lines_or_json_and_exits_with_1_on_failure(tmp_path: Path, service: Service) -> None:
    node = Node(tmp_path, service.endpoint)
    node.environment["PATH"] = environment("mpich")["PATH"]
    done = node.barograph("doctor")
    assert done.returncode == 0, done.stdout
    checks = ["shim", "mpi", "watching", "clock", "rings", "spool", "collector", "rules", "salt", "config"]
    checks += ["hooks", "cores"]
    assert [line.split()[1] for line in done.stdout.splitlines() if not line.startswith(" ")] == checks
    node.environment["BAROGRAPH_RULES"] = "/nowhere"
    done = node.barograph("doctor", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["well"]) == (1, False)
    assert [finding["check"] for finding in told["findings"]] == checks
    assert [finding["check"] for finding in told["findings"] if finding["state"] == "fail"] == ["rules"]


def test_the_configuration_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "barograph.toml"
    path.write_text("[agent]\nbudget = 0\n")
    found = check_configuration({"BAROGRAPH_CONFIG": str(path)})
    assert (found.state, found.text.partition(": ")[0]) == ("fail", str(path))
    path.write_text("[agent]\nbudget = 100\n")
    assert check_configuration({"BAROGRAPH_CONFIG": str(path)}).text == f"{path}: 1 settings in [agent]"


def test_a_job_that_may_use_all_processors_is_told_what_to_keep():
    assert check_cores(62, 64) == ("cores", "ok", "a job may use 62 of 64 processors", "")
    assert check_cores(64, 64).text == "a job may use 64 of 64 processors: ranks wait while a sidecar has one"
    assert "CoreSpecCount=1" in check_cores(64, 64).advice
