"""From a program that notes features to the prediction of its next run: real programs and daemons, `barograph run`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.cli import main
from barograph_agent.protocol.tables import TABLES
from barograph_collector.client.follow import LogWriter
from barograph_collector.client.log_reader import LogReader
from helpers import mpi as mpis
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.up import Up

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None and not os.environ.get("CI"), reason="no C compiler"),
    pytest.mark.timeout(900),
]

RUNS = 31
STEP = 0.2
"""Seconds that a step takes: the programs sleep until its end is due, so other work on the machine changes little."""
RUNS_TO_PREDICT = 3
"""Where the machine is so busy that one is over before its sidecar and the modeler have done their part."""
SPREAD = 0.08
"""Standard deviation of the logarithm of a run's time."""
C = (Path(__file__).parent / "programs/steps.c").read_text()
PYTHON = """
import sys, time
from barograph_agent import features, interval
n, began = int(sys.argv[1]), time.monotonic()
features(steps=n)
for step in range(n):
    with interval("step"):
        time.sleep(max(began + (step + 1) * 0.2 - time.monotonic(), 0))
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    # A run that alarms is not learned from, and a busy machine makes some slower.
    with Up(tmp_path_factory.mktemp("features"), "--margin=1") as up:
        yield up


def rows(service: Up, table: str, **wanted: str) -> list[dict[str, Any]]:
    """Rows of a table that have these values."""
    found = []
    with LogReader(service.endpoint, DEADLINE_SECONDS) as reader:
        for batch in reader.read_all(table):
            names = list(batch.columns)
            found += [dict(zip(names, row, strict=True)) for row in zip(*batch.columns.values(), strict=True)]
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


def steps_of(number: int) -> int:
    """10 to 120, in no order."""
    return 10 + 110 * (7 * number % RUNS) // (RUNS - 1)


def write_history(service: Up, app: str, steps: int) -> None:
    """Appends runs like the only one of this application, which had `steps`: with others, and counts in proportion.

    Their times vary by more than what a busy machine adds to one.
    """
    rng = np.random.default_rng(1)
    (job,) = rows(service, "jobs", app=app)
    (run,) = rows(service, "runs", job=job["job"])
    features = rows(service, "features", job=job["job"])
    assert any(feature["value"] == steps for feature in features)
    made: dict[str, list[dict[str, Any]]] = {"jobs": [], "features": [], "runs": []}
    for number in range(1, RUNS):
        more, stretch = (steps_of(number) - steps) * STEP, rng.lognormal(0, SPREAD)
        named = {"job": f"{job['job']}-{number}"}
        made["jobs"].append(job | named)
        for feature in features:
            counts = feature["name"].endswith((":taken", ":passed", ":iterations"))
            value, known = feature["value"], feature["known_seconds"]
            if counts or value == steps:
                value = value * steps_of(number) // steps
            if counts:
                known = (known + more) * stretch
            made["features"].append(feature | named | {"value": value, "known_seconds": known})
        seconds = (run["runtime_seconds"] + more) * stretch
        took = {"runtime_seconds": seconds, "ended_at": run["ended_at"] - run["runtime_seconds"] + seconds}
        made["runs"].append(run | named | took)
    writer = LogWriter(service.endpoint, f"history/{app}")
    # The ends in one message: the first model learns from all of them.
    for table, those in made.items():
        writer.put(table, len(those), {name: [row[name] for row in those] for name in TABLES[table].columns})
    assert writer.close(DEADLINE_SECONDS)


def predicted(service: Up, app: str, command: Callable[[int], list[str]], steps: int) -> dict[str, Any]:
    """Runs the program once, writes a history of such runs, runs it once more; returns what was said of that one."""
    done = service.run("run", "--app", app, "--", *command(steps_of(0)))
    assert done.returncode == 0, done.stderr
    write_history(service, app, steps_of(0))
    wait_until(
        lambda: rows(service, "models", application=f"local/{app}"), "a model of features", seconds=300, every=0.2
    )
    words = [sys.executable, "-m", "barograph", "run", "--app", app, "--", *command(steps)]

    def predictions() -> list[dict[str, Any]]:
        found = rows(service, "predictions", application=f"local/{app}", method="features")
        # The last of the others may have been running still when there was a model.
        return [row for row in found if row["job"] not in others]

    for _ in range(RUNS_TO_PREDICT):
        others = {row["job"] for row in rows(service, "jobs")}
        process = subprocess.Popen(words, env=service.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda run=process: predictions() or run.poll() is not None, "a prediction", every=0.1)
        in_time = process.poll() is None
        process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0
        if in_time:
            break
    assert in_time, "every run has ended unpredicted"
    (said,) = predictions()
    wait_until(lambda: rows(service, "outcomes", job=said["job"], method="features"), "an outcome", every=0.1)
    return said


def check(service: Up, said: dict[str, Any], seconds: float) -> None:
    """The prediction was near, its run fell inside, and the model had won against scales alone."""
    assert said["lower_seconds"] < said["expected_seconds"] < said["upper_seconds"]
    assert said["expected_seconds"] == pytest.approx(seconds, rel=0.5)
    (outcome,) = rows(service, "outcomes", job=said["job"], method="features")
    assert outcome["result"] == "inside", outcome
    model = rows(service, "models", application=said["application"])[-1]
    assert model["chosen"] == "features"
    assert model["error"] < 0.5 * model["scaling_error"] or model["scaling_error"] != model["scaling_error"]


@pytest.mark.process
def test_a_running_job_of_an_instrumented_program_is_predicted_from_its_input(service, tmp_path):
    mpi = mpis.find("mpich")
    (tmp_path / "solver.c").write_text(C)
    assert main(["instrument", str(tmp_path / "solver.c"), "-o", str(tmp_path / "out"), "--cc", str(mpi.mpicc)]) == 0
    binary = mpi.compile(tmp_path / "out" / "solver.c", tmp_path / "out" / "solver")
    said = predicted(service, "solver", lambda n: list(map(str, mpi.command(2, [binary, str(n)]))), 100)
    check(service, said, 100 * STEP)
    noted = {row["name"]: row for row in rows(service, "features", job=said["job"])}
    (name,) = (name for name in noted if name.endswith(":value:n"))
    assert (noted[name]["value"], noted[name]["processes"], noted[name]["reduction"]) == (100, 2, "max")
    assert noted[name]["source"] == name.removesuffix(":value:n")

    (tmp_path / "run.json").write_text(json.dumps({name: 64, "whatever": 1}))
    question = ("predict", "--app", "solver", "--ranks", "2", "--nodes", "1", "--features")
    done = service.run(*question, str(tmp_path / "run.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("solver on 2 ranks of local, 1 node, should take ")
    assert "Features that are unused: whatever." in done.stdout
    answer = json.loads(service.run(*question, str(tmp_path / "run.json"), "--json").stdout)
    assert answer["expected_seconds"] == pytest.approx(64 * STEP, rel=0.5)
    (tmp_path / "less").write_text("# nothing it needs\nwhatever = 1\n")
    done = service.run(*question, str(tmp_path / "less"))
    assert done.returncode == 65
    assert f"features are missing: {name}" in done.stdout
    assert done.stdout.count(f": {name}.") == 1


@pytest.mark.process
def test_a_running_program_that_names_its_features_is_predicted_from_them(service, tmp_path):
    (tmp_path / "app.py").write_text(PYTHON)
    said = predicted(service, "pysolver", lambda n: [sys.executable, str(tmp_path / "app.py"), str(n)], 100)
    check(service, said, 100 * STEP)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n=1\nn=2\n", "line 2: 'n' comes twice"),
        ("n\n", "line 1: 'n', expected NAME=VALUE"),
        ("n=many\n", "feature 'n' is 'many', expected a finite number"),
        ('{"n": NaN}', "feature 'n' is 'nan', expected a finite number"),
        ('{"n": [1]}', "feature 'n' is '[1]', expected a finite number"),
        ('{"n": 1', "is no JSON: "),
        ("", "has 0 features, expected 1 to 400"),
    ],
)
def test_a_file_that_holds_no_features_is_named_with_what_is_wrong(tmp_path, capsys, text, message):
    (tmp_path / "f").write_text(text)
    assert main(["predict", "--app", "a", "--ranks", "1", "--features", str(tmp_path / "f")]) == 65
    assert message in capsys.readouterr().err
    assert main(["predict", "--app", "a", "--ranks", "1", "--features", str(tmp_path / "none")]) == 65
    assert "No such file or directory" in capsys.readouterr().err
