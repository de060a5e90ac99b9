"""From a file of past runs to an answer: the real collector, the real modeler, the command its users type."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from barograph.views.advice import sentences
from helpers.log import DEADLINE_SECONDS, Producer
from helpers.scaling import law
from helpers.up import Up, complaints

pytestmark = pytest.mark.process

SCALES = (1, 2, 4, 8, 16, 32)
QUESTION = ("predict", "--app", "solver", "--ranks", "128", "--param", "n=1")


def history(path: Path) -> Path:
    """A CSV file of three runs at each scale and two sizes, as the law has them, and three bad lines."""
    rng = np.random.default_rng(4)
    rows = [
        f"solver,{ranks},1,{law(ranks, n) * rng.lognormal(0, 0.01):.6f},{n}"
        for n in (1, 3)
        for ranks in SCALES
        for _ in range(3)
    ]
    rows[7:7] = ["solver,none,1,5,1", "solver,8,1", "solver,8,1,0,1"]
    path.write_text("code,p,nodes,t,n\n" + "\n".join(rows) + "\n")
    return path


def imported(service: Up, path: Path) -> subprocess.CompletedProcess[str]:
    return service.run("import", str(path), "--cluster", "lab", "--map", "app=code,ranks=p,seconds=t,param:n=n")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service that has learned the file."""
    directory = tmp_path_factory.mktemp("predict")
    with Up(directory) as up:
        up.first = imported(up, history(directory / "runs.csv"))  # type: ignore[attr-defined]
        # A runtime band of each scale and size: written when all runs have been passed on to the predictors.
        up.wait_for_rows("bands", 12)
        up.wait_for_metric("modeler", r"barograph_modeler_fit_backlog 0\.0")
        # The command waits where the application is learned for the first time.
        assert up.run("predict", "--app", "solver", "--ranks", "128", "--param", "n=1").returncode == 0
        yield up


def get(service: Up, query: str) -> str:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{service.port + 2}/predict?{query}", timeout=DEADLINE_SECONDS
    ) as reply:
        return reply.read().decode()


def test_bad_lines_are_reported_and_the_rest_is_imported(service):
    assert service.first.returncode == 65
    assert service.first.stdout == "36 runs added, 0 known already\nnot learned: none\n3 bad lines\n"
    assert service.first.stderr.splitlines() == [
        "line 9: ranks is 'none', expected a whole number from 1 to 100000000",
        "line 10: 3 cells, expected 5 as in the first line",
        "line 11: seconds is '0', expected seconds above 0 or [[DAYS-]HOURS:]MINUTES:SECONDS",
    ]


def test_the_same_file_again_adds_nothing(service):
    again = imported(service, service.state.parent / "runs.csv")
    assert again.stdout.startswith("0 runs added, 36 known already\n")
    assert re.search(r"barograph_modeler_runs_total 36\.0", service.metrics("modeler"))


def test_the_prediction_is_near_the_law_that_generated_the_runs(service):
    said = json.loads(service.run(*QUESTION, "--json").stdout)
    assert said["expected_seconds"] == pytest.approx(law(128), rel=0.2)
    assert said["lower_seconds"] < law(128) < said["upper_seconds"]
    assert said["speedup"]["ratio"] == pytest.approx(law(1) / law(128), rel=0.2)


def test_the_command_prints_the_answer_as_sentences(service):
    done = service.run(*QUESTION)
    assert (done.returncode, complaints(done)) == (0, "")
    assert done.stdout.splitlines() == sentences(json.loads(get(service, "app=solver&ranks=128&param.n=1")))
    assert re.search(r"^solver \(n=1\) on 128 ranks of lab should take [\d.]+ s; 95 of 100 runs take ", done.stdout)
    assert re.search(r"^Ask for 00:0\d:00: at most [\d.]+ % of such runs need longer\.$", done.stdout, re.MULTILINE)
    assert "times as fast as on 1 rank" in done.stdout
    assert "This rests on 36 runs at 6 scales up to 32 ranks" in done.stdout


def test_other_questions_get_one_line_and_a_status(service):
    done = service.run("predict", "--app", "nobody", "--ranks", "4")
    assert (done.returncode, done.stderr) == (65, "barograph predict: no finished run of 'nobody' is known\n")
    done = service.run("predict", "--app", "solver", "--ranks", "many")
    assert done.returncode == 2
    assert done.stderr == "barograph predict: ranks is 'many', expected a whole number from 1 to 100000000\n"
    done = service.run(*QUESTION, "--modeler", "http://127.0.0.1:1")
    assert done.returncode == 69
    assert done.stderr.startswith("barograph predict: no answer from the modeler at http://127.0.0.1:1: ")
    done = service.run(*QUESTION, "--modeler", f"http://127.0.0.1:{service.port + 3}")
    assert done.returncode == 69
    assert done.stderr.endswith(", expected a modeler\n")


def test_a_picture_is_drawn(service, tmp_path):
    done = service.run(*QUESTION, "--plot", str(tmp_path / "projection.html"))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "projection.html").read_text()
    assert "<title>solver on " in text
    assert 'aria-label="Runtime of solver over ranks. ' in text
    assert service.run(*QUESTION, "--plot", str(tmp_path / "none/projection.html")).returncode == 73
    refused = service.run(*QUESTION, "--plot", "projection.png")
    assert (refused.returncode, refused.stderr.splitlines()[-1].rpartition(": ")[2]) == (
        2,
        "'projection.png', expected FILE.html",
    )


def test_a_killed_modeler_gives_the_same_answer_after_its_restart(service):
    before = get(service, "app=solver&ranks=128&param.n=1&nodes=2&curve=1")
    os.kill(service.pid("modeler"), signal.SIGKILL)
    service.wait_for(" modeler following the log", times=2)
    service.wait_for_metric("modeler", r"barograph_modeler_runs_total 36\.0")
    service.wait_for_metric("modeler", r"barograph_modeler_fit_backlog 0\.0")
    service.wait_for_metric("modeler", r"barograph_modeler_applications 1\.0")
    assert get(service, "app=solver&ranks=128&param.n=1&nodes=2&curve=1") == before


def test_a_running_job_is_predicted_in_the_log_and_scored_at_its_end(service):
    with Producer(service.endpoint, "predicted") as producer:
        producer.hello()
        job = {"job": "lab/live.0.0", "cluster": "lab", "workload": "lab/solver@64x1", "app": "solver", "user": "u",
               "params": '{"n":"1"}', "ranks": 64, "nodes": 1, "host": "h", "started_at": 1e9,
               "scheduler": "none", "account": "", "unique_id": ""}  # fmt: skip
        producer.append(1, "jobs", 1, job)
        producer.receive_ack(1)
        service.wait_for_rows("predictions", 1)
        run = {"job": "lab/live.0.0", "ended_at": 1e9 + law(64), "runtime_seconds": law(64), "exit_status": 0,
               "intervals": 0, "dropped": 0, "imported": 0}  # fmt: skip
        producer.append(2, "runs", 1, run)
        producer.receive_ack(2)
    service.wait_for_metric(
        "modeler", r'barograph_predictions_scored_total\{application="lab/solver",result="inside"\} 1\.0'
    )
    error = service.wait_for_metric("modeler", r'barograph_prediction_relative_error\{application="lab/solver"\}')
    assert float(error.rpartition(" ")[2]) < 0.2
    service.wait_for_rows("outcomes", 1)


@pytest.mark.integration
def test_promtool_accepts_an_answer(service):
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("CI"), "promtool is missing: tests/install-packages installs it"
        pytest.skip("promtool is missing")
    for text in (get(service, "app=solver&ranks=128&param.n=1&format=prometheus"), service.metrics("modeler")):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
