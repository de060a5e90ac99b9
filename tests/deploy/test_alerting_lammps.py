"""From real LAMMPS to a webhook call: agent, log, modeler, alerts, Prometheus and Alertmanager, without simulation.

One rank is held up by SIGSTOP most of the time: unlike a CPU hog that slows the run by the same factor on a machine
that is busy with other things, and the margin is wider than what those may do. What runs beside it on two cores makes
a healthy run four times slower, and then it is rightly called slow: this test runs alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.demo.application import Lammps
from barograph.demo.runs import DemoRun, newest_job, read_run, wait_intervals, wait_learned
from barograph_collector.client.log_reader import LogReader
from helpers.alerting import Webhook, watched
from helpers.injections import rank_of
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.quiet import repeated_if_disturbed
from helpers.up import Up

pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(1800)]
MARGIN = 2.0
RUN_SECONDS = 25.0
"""At the highest speed of the machine: a first run is judged from its 15th window of 1 s on."""
LEARNED_SECONDS = 120.0
RUN_LIMIT_SECONDS = 900.0
GO_SECONDS, STOP_SECONDS = 0.06, 0.94
CALL_SECONDS = 600.0
QUIET_SECONDS = 5.0


class Machine:
    """One service and LAMMPS runs under its eyes, all of the same length."""

    def __init__(self, up: Up, directory: Path) -> None:
        self.up = up
        self.reader = LogReader(up.endpoint, DEADLINE_SECONDS)
        self.lammps = Lammps(directory)
        self._directory = directory
        self._jobs: set[str] = set()
        self._steps = round(self.lammps.steps_per_second() * RUN_SECONDS)

    @contextmanager
    def run(self) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        """A run under `barograph run`: its job and its process."""
        process = self.lammps.start_watched(self._steps, self.up.environment, self._directory / "run.txt")
        try:
            job = newest_job(self.reader, self._jobs, 120.0)
            self._jobs.add(job)
            yield job, process
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)


@contextmanager
def held_up(pid: int) -> Iterator[float]:
    """A process stopped most of the time; yields when that began, in Unix seconds."""
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            over.wait(STOP_SECONDS)
            os.kill(pid, signal.SIGCONT)
            over.wait(GO_SECONDS)

    thread = threading.Thread(target=hold)
    began = time.time()
    thread.start()
    try:
        yield began
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook) -> Iterator[Machine]:
    directory = tmp_path_factory.mktemp("lammps")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("BAROGRAPH_ALERTS_LABELS", "user")
        # The rules' own patience: the cause must have settled, or a change of it would be another alert.
        with watched(directory, webhook, f"--margin={MARGIN:g}", "--window=0.5", patience="30s") as up:
            made = Machine(up, directory)
            yield made
            made.reader.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: a rank cannot be told from the others")
def test_a_disturbed_lammps_run_is_one_complete_call_and_a_healthy_one_is_none(machine: Machine, webhook: Webhook):
    learned = 0
    while learned < 2:
        chapter = run_healthy(machine)
        pace = wait_learned(machine.reader, chapter.workload, learned + 1, LEARNED_SECONDS)
        assert pace is not None
        assert pace.runs > learned or chapter.state == "inconclusive"
        learned = pace.runs
        assert calls_about(webhook, chapter.job) == []
        assert [call for call in webhook.calls if call["groupLabels"]["alertname"] != "BarographJobSlow"] == []
    disturb(machine, webhook, chapter)


@repeated_if_disturbed
def run_healthy(machine: Machine) -> DemoRun:
    with machine.run() as (job, process):
        assert process.wait(RUN_LIMIT_SECONDS) == 0
    chapter = read_run(machine.reader, "healthy", job)
    # One of 20 is outside the limits, more beside others. It is no alarm, and only a shorter one is learned.
    assert chapter.state in ("healthy", "inconclusive"), chapter.sentence
    return chapter


def calls_about(webhook: Webhook, job: str) -> list[dict[str, Any]]:
    return [call for call in webhook.calls if job in json.dumps(call)]


def disturb(machine: Machine, webhook: Webhook, chapter: DemoRun) -> None:
    """A run with a rank that is held up. chapter: a run before it."""
    with machine.run() as (job, process):
        wait_intervals(machine.reader, job, chapter.stored // 4, lambda: process.poll() is None)
        with held_up(rank_of(process, "lmp", 1)) as began:
            wait_until(
                lambda: calls_about(webhook, job) or process.poll() is not None,
                "a webhook call about the held up run",
                CALL_SECONDS,
            )
            assert process.poll() is None, "the run was over before the call came"
            [call] = calls_about(webhook, job)
            [alert] = call["alerts"]
            assert (alert["status"], alert["labels"]["alertname"]) == ("firing", "BarographJobSlow")
            assert (alert["labels"]["job"], alert["labels"]["user"]) == (job, _user())
            said = alert["annotations"]
            assert said["description"].startswith("slow: ")
            assert "x its history since " in said["description"]
            assert float(said["slowdown"]) > 1 + MARGIN
            since = datetime.strptime(said["since"].partition(".")[0], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            assert since.timestamp() == pytest.approx(began, abs=10)
            assert said["members"] == "rank 1"

            os.kill(machine.up.pid("alerts"), signal.SIGKILL)
            machine.up.wait_for(" alerts following the log", times=2)
            machine.up.wait_for_metric("alerts", rf'barograph_job_alarm_info\{{[^}}]*job="{job}"')
            _pause(QUIET_SECONDS, lambda: process.poll() is None)
            assert len(calls_about(webhook, job)) == 1
        # It is as slow as was said: by its own intervals, before and after.
        blocks = [page.columns for page in machine.reader.read_all("blocks", job=job)]
        count, seconds, ended_at = (
            np.concatenate([np.asarray(page[name]) for page in blocks]) for name in ("count", "sum_seconds", "ended_at")
        )
        mean = {late: seconds[(ended_at > began) == late].sum() / count[(ended_at > began) == late].sum() for late in
                (False, True)}  # fmt: skip
        assert float(said["slowdown"]) == pytest.approx(mean[True] / mean[False], rel=0.6)


def _user() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def _pause(seconds: float, running: Callable[[], bool]) -> None:
    """Let the world go on, while what is watched still runs."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert running(), "the run is over before the test is"
        time.sleep(0.2)
