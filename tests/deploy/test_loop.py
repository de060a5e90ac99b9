"""The loop, closed: simulated jobs through the real agent's link, real daemons, real metrics and tables."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from helpers.jobs import Simulation
from helpers.log import DEADLINE_SECONDS
from helpers.up import Up

WORKLOAD = "lab/app@2x1"


def deliver(service: Up, job: dict[str, dict]) -> str:
    """Send one simulated job as a sidecar would and return its name."""
    name = job["jobs"]["job"][0]
    outbox = Memory()
    link = Link(service.endpoint, f"{name}/test", outbox)

    def put(table: str, rows: int, **values: object) -> None:
        outbox.put(rows, wire.encode(wire.append(link.stream, outbox.next_seq, table, rows, {"job": name, **values})))

    started = job["jobs"]["started_at"][0]
    put("jobs", 1, cluster="lab", workload=WORKLOAD, app="app", user="u", params="{}", ranks=2, nodes=1, host="h",
        started_at=started, scheduler="none", account="", unique_id="")  # fmt: skip
    seconds, ends = job["blocks"]["sum_seconds"], job["blocks"]["ended_at"]
    for at in range(0, len(seconds), 500):
        part = slice(at, at + 500)
        one = seconds[part]
        put("blocks", len(one), world=0, class_id=job["blocks"]["class_id"][part], count=1,
            first_index=np.arange(at, at + len(one)), sum_seconds=one, sum_squares=one**2, sum_cubes=one**3,
            min_seconds=one, max_seconds=one, ended_at=ends[part])  # fmt: skip
    put("runs", 1, ended_at=float(ends[-1]), runtime_seconds=float(seconds.sum()), exit_status=0,
        intervals=len(seconds), dropped=0, imported=0)  # fmt: skip
    assert link.wait_idle(DEADLINE_SECONDS)
    link.close()
    return name


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service that has seen six healthy jobs and a slow one."""
    simulation = Simulation(intervals=6000)
    with Up(tmp_path_factory.mktemp("loop")) as up:
        for count in range(1, 7):
            deliver(up, simulation.job())
            # The next job is judged by what the log has of this one.
            up.wait_for_rows("paces", count)
        up.slow = deliver(up, simulation.job(slow_from=3000, factor=1.6))  # type: ignore[attr-defined]
        # The modeler withholds what the log says has alarmed.
        up.wait_for_metric("modeler", r'barograph_modeler_intervals_total\{result="withheld"\} 6000\.0')
        up.wait_for_metric("modeler", r"barograph_modeler_refit_backlog 0\.0")
        yield up


def test_the_slow_job_and_only_it_is_exposed_as_an_alarm(service):
    text = service.metrics("alerts")
    scores = [line for line in text.splitlines() if line.startswith("barograph_job_score{")]
    assert len(scores) == 1
    assert f'job="{service.slow}"' in scores[0]
    assert float(scores[0].rpartition(" ")[2]) > 1
    slowdown = next(line for line in text.splitlines() if line.startswith("barograph_job_slowdown_ratio{"))
    assert float(slowdown.rpartition(" ")[2]) == pytest.approx(1.6, rel=0.03)
    assert 'barograph_alerts_jobs_total{state="healthy"} 5.0' in text
    assert 'barograph_alerts_jobs_total{state="unknown"} 1.0' in text


def test_bands_and_runtimes_are_exposed_without_the_slow_job(service):
    text = service.metrics("modeler")
    assert 'barograph_modeler_intervals_total{result="withheld"} 6000.0' in text
    median = 'barograph_runtime_predicted_seconds{probability="0.5"'
    expected = next(x for x in text.splitlines() if x.startswith(median))
    assert float(expected.rpartition(" ")[2]) == pytest.approx(15.0, rel=0.01)
    upper = [x for x in text.splitlines() if x.startswith("barograph_interval_upper_seconds{")]
    assert len(upper) == 6  # two classes, three methods
    assert sorted(float(x.rpartition(" ")[2]) for x in upper) == pytest.approx([0.00106] * 3 + [0.00424] * 3, rel=0.02)


def test_status_shows_jobs_bands_and_the_alarm(service):
    done = service.run("status", "--since", "1970-01-10")
    assert done.returncode == 0
    assert re.search(rf"{service.slow}: slow: 1\.(5[5-9]|6\d)x its history since ", done.stdout)
    assert "Alarms: none of running jobs, 1 of jobs that ended" in done.stdout
    assert "15.0" in done.stdout


def test_a_restarted_alerts_daemon_does_not_score_finished_jobs_again(service):
    offset = service.wait_for_metric("collector", r'barograph_collector_rows_total\{table="scores"\}')
    os.kill(service.pid("alerts"), signal.SIGKILL)
    service.wait_for(" alerts following the log", times=2)
    simulation = Simulation(seed=77, intervals=6000)
    simulation._made = 100
    deliver(service, simulation.job())
    service.wait_for_metric("alerts", r'barograph_alerts_jobs_total\{state="healthy"\} 1\.0')
    after = service.wait_for_metric("collector", r'barograph_collector_rows_total\{table="scores"\}')
    assert float(after.rpartition(" ")[2]) - float(offset.rpartition(" ")[2]) <= 3  # rows of the new job alone


def number(line: str) -> float:
    """The value of a line of metrics."""
    return float(line.rpartition(" ")[2])


def test_a_restarted_modeler_still_excludes_the_slow_job(service):
    service.wait_for_metric("modeler", r"barograph_modeler_runs_total 7\.0")
    before = service.wait_for_metric("modeler", r'barograph_runtime_predicted_seconds\{probability="0.975"')
    os.kill(service.pid("modeler"), signal.SIGKILL)
    service.wait_for(" modeler following the log", times=2)
    service.wait_for_metric("modeler", r'barograph_modeler_intervals_total\{result="withheld"\} 6000\.0')
    service.wait_for_metric("modeler", r"barograph_modeler_held_jobs 0\.0")
    service.wait_for_metric("modeler", r"barograph_modeler_runs_total 7\.0")
    after = service.wait_for_metric("modeler", r'barograph_runtime_predicted_seconds\{probability="0.975"')
    assert number(after) == pytest.approx(number(before), rel=0.01)  # of the slow job it is 1.6 times as much


def test_a_stopped_modeler_continues_from_its_snapshot(service):
    asked = (r"barograph_modeler_runs_total", r'barograph_runtime_predicted_seconds\{probability="0.975"')
    # It keeps none as long as the log does not have what it said.
    service.wait_for_metric("modeler", r"barograph_modeler_refit_backlog 0\.0")
    before = [service.wait_for_metric("modeler", pattern) for pattern in asked]
    os.kill(service.pid("modeler"), signal.SIGTERM)
    service.wait_for(" modeler going on from snapshot ")
    after = [service.wait_for_metric("modeler", pattern) for pattern in asked]
    # How many runs the model has seen depends on when it was fitted last.
    assert [number(line) for line in after] == pytest.approx([number(line) for line in before], rel=0.01)


@pytest.mark.integration
@pytest.mark.parametrize("daemon", ["collector", "modeler", "alerts"])
def test_promtool_accepts_the_exposition(service, daemon):
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("CI"), "promtool is missing: tests/install-packages installs it"
        pytest.skip("promtool is missing")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=service.metrics(daemon), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.integration
def test_promtool_accepts_the_alerting_rules():
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("CI"), "promtool is missing: tests/install-packages installs it"
        pytest.skip("promtool is missing")
    rules = Path(__file__).parents[2] / "alerts/rules/barograph.rules.yml"
    done = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_intervals_on_more_ranks_are_predicted_from_those_of_the_only_scale(service):
    done = service.run("predict", "--intervals", "--app", "app", "--ranks", "8")
    assert done.returncode == 0, done.stderr  # the command waits where the application is learned for the first time
    first, second, *assumed = done.stdout.splitlines()
    assert re.match(r"80 % of the time, class 000000000000000b: \d+\.\d+ ms expected on 8 ranks, ", first)
    assert re.match(r"20 % of the time, class 0000000000000016: [\d.]+ .s expected on 8 ranks, ", second)
    assert first.endswith("; seen on 2.")
    assert assumed == [
        "Assumed: the logarithm of the length of intervals is linear in that of the ranks.",
        "Assumed: where intervals of one scale are known, it is unknown whether they get shorter or longer.",
    ]
