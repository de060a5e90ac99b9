"""The identity of a run: job, application, parameters, workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from barograph_agent.job import identity
from barograph_agent.job.identity import Job, JobError, from_environment, guess_app, parse_params
from barograph_agent.protocol.tables import IDENTIFIER
from barograph_agent.settings import places, sources


def job(environment: dict[str, str] | None = None, **changes: object) -> Job:
    arguments: dict[str, object] = {
        "command": ["./a.out"],
        "app": None,
        "params": {},
        "user": "ada",
        "host": "n1",
        "unique": "20250101T000000-77",
        **changes,
    }
    return from_environment(environment or {}, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({}, "local/20250101T000000-77.0.0"),
        ({"SLURM_JOB_ID": "4711"}, "local/4711.0.20250101T000000-77"),
        ({"SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "blue"}, "blue/4711.0.20250101T000000-77"),
        (
            {"SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "blue", "BAROGRAPH_CLUSTER": "red"},
            "red/4711.0.20250101T000000-77",
        ),
        ({"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "2"}, "local/4711.2.20250101T000000-77"),
        ({"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "x"}, "local/4711.0.20250101T000000-77"),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3"}, "local/4711.0.3-20250101T000000-77"),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "4294967291"}, "local/4711.0.20250101T000000-77"),
        ({"PBS_JOBID": "4711.pbs01.site.org"}, "pbs01/4711.0.20250101T000000-77"),
        ({"PBS_JOBID": "4711[2].pbs01"}, "pbs01/4711_2.0.20250101T000000-77"),
        ({"FLUX_JOB_ID": "\u01922WwSbk9J"}, "local/f2WwSbk9J.0.20250101T000000-77"),
        ({"FLUX_JOB_ID": "f2Ww", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}, "local/f2Ww.0.20250101T000000-77"),
        (
            {"SLURM_JOB_ID": "4713", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "2"},
            "local/4711_2.0.20250101T000000-77",
        ),
        ({"BAROGRAPH_CLUSTER": ""}, "local/20250101T000000-77.0.0"),
        ({"BAROGRAPH_CLUSTER": "lab 1/\u00fc"}, "lab-1/20250101T000000-77.0.0"),
        ({"BAROGRAPH_CLUSTER": "\u00fc"}, "local/20250101T000000-77.0.0"),
    ],
)
def test_a_job_is_identified_by_the_batch_system_if_there_is_one(environment: dict[str, str], key: str) -> None:
    assert job(environment).key == key


def test_names_are_identifiers_for_any_environment() -> None:
    long = "\u00e9 x" * 500
    names = ("BAROGRAPH_CLUSTER", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ACCOUNT")
    numbers = dict.fromkeys(("SLURM_RESTART_COUNT", "SLURM_STEP_ID", "SLURM_JOB_NUM_NODES"), "4294967290" * 9)
    one = job(
        dict.fromkeys(names, long) | numbers, user=long, host=long, unique="u" * 40, command=[long], params={"a": long}
    )
    # A stream is the job's key, a slash and eight digits.
    for name in (one.user, one.host, one.app, f"{one.key}/12345678", one.workload(2**31 - 1, 99999)):
        assert IDENTIFIER.fullmatch(name), name
    assert (job(user="").user, job(host="\u00fc").host) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("words", "app"),
    [
        ("./a.out", "a.out"),
        ("mpiexec -n 2 /opt/lammps/bin/lmp -in in.lj", "lmp"),
        ("mpirun.openmpi --oversubscribe -n 4 ./xhpcg", "xhpcg"),
        ("srun --ntasks=8 --mpi=pmix ./cp2k.psmp -i H2O.inp", "cp2k.psmp"),
        ("env OMP_NUM_THREADS=1 mpiexec.hydra -n 2 lmp", "lmp"),
        ("nice -n 5 time mpiexec -n 2 lmp", "lmp"),
        ("mpiexec -n 2 python train.py --steps 10", "train"),
        ("mpiexec -n 2 python3.11 -m mpi4py solver.py", "mpi4py"),
        ("bash run.sh", "run"),
        ("./job.sh arg", "job"),
        ("python", "python"),
        ("sh", "sh"),
        # Programs with names that begin like those of interpreters.
        ("mpiexec -n 2 shallow_water input.nml", "shallow_water"),
        ("pythia8 main.cmnd", "pythia8"),
        ("bashful x", "bashful"),
        # Cases that need `--app`.
        ("taskset -c 0,1 lmp", "0-1"),
        ("mpirun --bind-to none -n 4 ./xhpcg", "none"),
        ("mpiexec -n 2", "mpiexec"),
    ],
)
def test_the_application_is_guessed_from_its_command_line(words: str, app: str) -> None:
    assert guess_app(words.split()) == app


def test_an_empty_command_is_unknown_and_a_given_name_takes_precedence() -> None:
    assert guess_app([]) == "unknown"
    assert guess_app(["\u00fc"]) == "unknown"
    assert job(app="LAMMPS@2023+kokkos").app == "LAMMPS@2023+kokkos"


@pytest.mark.parametrize("app", ["", "two words", "x" * 41, "\u00fc", "x\n"])
def test_an_invalid_application_name_is_rejected(app: str) -> None:
    with pytest.raises(JobError) as raised:
        job(app=app)
    assert str(raised.value) == f"app is {app!r}, expected 1-40 characters from A-Z a-z 0-9 _ . : @ / + -"


def test_of_repeated_parameters_the_last_one_applies() -> None:
    pairs = ["x=4", "in.file=a=b c", "empty=", "x=5"]
    assert parse_params(pairs) == {"x": "5", "in.file": "a=b c", "empty": ""}
    assert parse_params([]) == {}


@pytest.mark.parametrize(
    ("word", "quoted"), [("x", "x"), ("=4", "=4"), ("a b=4", "'a b=4'"), ("", "''"), ("\u00fc=1", "'\u00fc=1'")]
)
def test_an_invalid_parameter_is_rejected(word: str, quoted: str) -> None:
    with pytest.raises(JobError) as raised:
        parse_params(["fine=1", word])
    assert str(raised.value) == f"--param is {quoted}, expected NAME=VALUE, such as x=4"


def test_runs_are_compared_within_a_workload_of_application_scale_and_parameters() -> None:
    assert job().workload(2, 1) == "local/a.out@2x1"
    # Stored bands refer to this name, so it must never change: printf '[["steps","100"],["x","4"]]' | b2sum -l 32
    known = "local/a.out@64x4:94fad9c2"
    assert job(params={"x": "4", "steps": "100"}).workload(64, 4) == known
    assert job(params={"steps": "100", "x": "4"}).workload(64, 4) == known
    others = [{"x": "4"}, {"x": "4", "steps": "101"}, {"steps": "4", "x": "100"}]
    assert len({job(params=params).workload(64, 4) for params in others} | {known}) == 4


def test_a_user_without_a_name_is_identified_by_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(identity.getpass, "getuser", unknown)
    monkeypatch.setattr(identity.os, "getuid", lambda: 12345)
    assert identity.account() == "12345"


@pytest.mark.parametrize(
    ("given", "program", "app"),
    [
        (None, "/opt/hpcg/bin/xhpcg", "xhpcg"),
        (None, "/usr/bin/python3.11", "none"),
        (None, "", "none"),
        (None, "work/train.py", "train"),
        (None, "mpi4py.bench", "mpi4py.bench"),
        ("mine", "/opt/hpcg/bin/xhpcg", "mine"),
    ],
)
def test_the_executable_replaces_a_guessed_application_name(given, program, app):
    command = ["mpirun", "--bind-to", "none", "xhpcg"]
    job = from_environment({}, command=command, app=given, params={}, user="u", host="h", unique="1")
    assert job.named_by(program).app == app
    assert job.named_by(program).workload(4, 1) == f"local/{app}@4x1"


def test_nodes_account_and_unique_id_come_from_the_batch_system(tmp_path: Path) -> None:
    slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_ACCOUNT": "phys", "SLURM_JOB_SLUID": "sAB1"}
    hosts = tmp_path / "nodes"
    hosts.write_text("n1\nn1\nn2\nn2\n")
    cases = [
        (slurm, ("slurm", 4, "phys", "sAB1")),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "-4"}, ("slurm", 1, "", "")),
        ({"PBS_JOBID": "1.s", "PBS_NODEFILE": str(hosts), "PBS_ACCOUNT": "chem"}, ("pbs", 2, "chem", "")),
        ({"PBS_JOBID": "1.s", "PBS_NODEFILE": str(tmp_path / "none")}, ("pbs", 1, "", "")),
        ({"PBS_JOBID": "1.s", "PBS_NODEFILE": "/dev/zero"}, ("pbs", 1, "", "")),
        ({"FLUX_JOB_ID": "f1", "FLUX_JOB_NNODES": "3"}, ("flux", 3, "", "")),
        ({}, ("none", 1, "", "")),
    ]
    for environment, facts in cases:
        found = job(environment)
        assert (found.scheduler, found.nodes, found.account, found.unique_id) == facts


def test_site_files_in_an_inaccessible_directory_count_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    # ENAMETOOLONG, as EACCES does not occur for root: Path.exists raises for both.
    inaccessible = Path("/etc") / ("x" * 300)
    monkeypatch.setattr(places, "SITE_RULES", inaccessible)
    monkeypatch.setattr(sources, "SITE_FILE", inaccessible)
    with pytest.raises(OSError, match="too long"):
        inaccessible.exists()
    assert places.rules({}) is None
    assert sources.site_file({}) is None
