"""From a disturbed job to a webhook call, with the real Prometheus and the real Alertmanager."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import numpy as np
import pytest

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from helpers.alerting import RULES, Webhook, alerting, tool, watched
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.up import Up, free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
QUIET_SECONDS = 10.0
"""Longer than an alarm has to last, and than calls are apart."""


def test_each_rule_does_what_its_test_says():
    done = subprocess.run(
        [tool("promtool"), "test", "rules", RULES / "barograph.rules.test.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    alerts = re.findall(r"- alert: (\w+)", (RULES / "barograph.rules.yml").read_text())
    tested = set(re.findall(r"alertname: (\w+)", (RULES / "barograph.rules.test.yml").read_text()))
    assert set(alerts) == tested


def test_the_alertmanager_example_is_valid():
    done = subprocess.run(
        [tool("amtool"), "check-config", RULES / "alertmanager.example.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


NODE_ALERTS = [
    {"alertname": "BarographNodeSlow", "node": "n1"},
    {"alertname": "BarographJobSlow", "job": "lab/1", "node": "n1"},
    {"alertname": "BarographJobSlow", "job": "lab/2", "node": "n2"},
    {"alertname": "BarographJobSlow", "job": "lab/3"},
    {"alertname": "BarographJobStalled", "job": "lab/4", "node": "n1"},
    {"alertname": "BarographDaemonSilent", "daemon": "alerts", "instance": "monitor:7453"},
    {"alertname": "BarographDaemonDown", "instance": "monitor:7452"},
]


@pytest.mark.parametrize(
    ("sources", "silenced"),
    [
        ([], ["BarographJobSlow lab/1"]),
        ([{"alertname": "BarographFacilitySlow"}],
         ["BarographJobSlow lab/1", "BarographJobSlow lab/2", "BarographJobSlow lab/3", "BarographNodeSlow n1"]),
    ],
    ids=["a slow node", "a slow facility"],
)  # fmt: skip
def test_an_alarm_silences_what_it_explains_and_nothing_else(tmp_path, sources, silenced):
    (tmp_path / "alertmanager.yml").write_text((RULES / "alertmanager.example.yml").read_text())
    alerts = [{"labels": labels} for labels in [*NODE_ALERTS, *sources]]
    address = f"http://127.0.0.1:{(port := free_ports(1))}/api/v2/alerts"
    with alerting(tmp_path, port):
        posted = urllib.request.Request(address, json.dumps(alerts).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(posted, timeout=DEADLINE_SECONDS).close()

        def inhibited() -> list[str]:
            with urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as answer:
                found = json.load(answer)
            if len(found) < len(alerts) or any(one["status"]["state"] == "unprocessed" for one in found):
                return ["unprocessed"]
            all_labels = (one["labels"] for one in found if one["status"]["inhibitedBy"])
            return sorted(f"{of['alertname']} {of.get('job') or of.get('node')}" for of in all_labels)

        wait_until(lambda: inhibited() == silenced, f"{silenced} are silenced")


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook) -> Iterator[Up]:
    with watched(tmp_path_factory.mktemp("alerting"), webhook) as up:
        yield up


class Job:
    """A job of 4 ms intervals that runs beside the test, in chunks of seconds that have just passed."""

    def __init__(self, service: Up, name: str) -> None:
        self.name = name
        self._rng = np.random.default_rng(len(name))
        self._outbox = Memory()
        self._link = Link(service.endpoint, f"{name}/test", self._outbox)
        self._index = 0
        self.at = time.time() - 300
        self.put("jobs", 1, cluster="lab", workload="lab/app@2x1", app="app", user="ada", params="{}", ranks=2, nodes=1,
                 host="h", started_at=self.at, scheduler="none", account="", unique_id="")  # fmt: skip

    def put(self, table: str, rows: int, **values: object) -> None:
        message = wire.append(self._link.stream, self._outbox.next_seq, table, rows, {"job": self.name, **values})
        self._outbox.put(rows, wire.encode(message))

    def run(self, seconds: float, factor: float = 1.0) -> None:
        one = factor * 0.004 * self._rng.lognormal(0, 0.03, int(seconds / factor / 0.004))
        ends = self.at + np.cumsum(one)
        self.put("blocks", len(one), world=0, class_id=np.full(len(one), 7, np.uint64), count=1,
                 first_index=np.arange(self._index, self._index + len(one)), sum_seconds=one, sum_squares=one**2,
                 sum_cubes=one**3, min_seconds=one, max_seconds=one, ended_at=ends)  # fmt: skip
        self._index, self.at = self._index + len(one), float(ends[-1])
        assert self._link.wait_idle(DEADLINE_SECONDS)

    def end(self) -> None:
        self.put("runs", 1, ended_at=self.at, runtime_seconds=0.004 * self._index, exit_status=0,
                 intervals=self._index, dropped=0, imported=0)  # fmt: skip
        assert self._link.wait_idle(DEADLINE_SECONDS)

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def test_a_disturbed_job_is_one_complete_webhook_call_despite_a_killed_daemon(service, webhook):
    for number in range(3):
        with Job(service, f"lab/1{number}.0.0") as healthy:
            healthy.run(60)
            healthy.end()
        service.wait_for_metric("modeler", rf"barograph_modeler_runs_total {number + 1}\.0")
    assert webhook.calls == []

    with Job(service, "lab/20.0.0") as slow:
        slow.run(60)
        began = slow.at
        slow.run(30, factor=1.6)
        wait_until(lambda: webhook.of("BarographJobSlow"), "a webhook call about the slow job")
        [call] = webhook.of("BarographJobSlow")
        [alert] = call["alerts"]
        assert alert["status"] == "firing"
        assert alert["labels"]["job"] == "lab/20.0.0"
        assert "user" not in alert["labels"]
        said = alert["annotations"]
        assert float(said["slowdown"]) == pytest.approx(1.6, abs=0.05)
        assert said["description"].startswith("slow: 1.6")
        onset = datetime.strptime(said["since"].partition(".")[0], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        assert onset == pytest.approx(began, abs=2)

        os.kill(service.pid("alerts"), signal.SIGKILL)
        service.wait_for(" alerts following the log", times=2)
        until = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < until:
            slow.run(0.5, factor=1.6)
            assert len(webhook.of("BarographJobSlow")) == 1
            time.sleep(0.5)
        # The alarm is there again, and was found in the same place.
        line = service.wait_for_metric("alerts", r'barograph_job_onset_timestamp_seconds\{job="lab/20.0.0"\}')
        assert float(line.split()[-1]) == pytest.approx(onset, abs=1)


@pytest.mark.parametrize("name", ["modeler", "collector"])
@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_frozen_or_missing_daemon_is_reported_until_it_is_back(service, webhook, name, blow):
    service.hurry()
    pid, before = service.pid(name), len(webhook.of("BarographDaemonDown"))
    port = service.port + 1 + ("collector", "modeler", "alerts").index(name)

    def is_said_to_be(status: str) -> bool:
        alerts = [alert for call in webhook.of("BarographDaemonDown")[before:] for alert in call["alerts"]]
        said = [alert["status"] for alert in alerts if alert["labels"]["instance"] == f"127.0.0.1:{port}"]
        return said[-1:] == [status]

    # Its supervisor would start a killed one again at once.
    os.kill(service.process.pid, signal.SIGSTOP)
    os.kill(pid, blow)
    try:
        wait_until(lambda: is_said_to_be("firing"), f"an alert about the {name}")
    finally:
        if blow == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        os.kill(service.process.pid, signal.SIGCONT)
    wait_until(lambda: is_said_to_be("resolved"), f"the {name} to be back")


def test_a_canary_alarms_and_notifies_nobody(service, webhook):
    done = service.run("canary", "--alertmanager", service.alertmanager, "--seconds=100")
    assert done.returncode == 0, done.stderr
    assert re.match(r"canary/\d+\.0\.0: slow: 3\.00x its own first windows since ", done.stdout)
    assert [call for call in webhook.calls if "canary" in json.dumps(call)] == []


def test_a_failed_canary_names_the_failed_step(tmp_path):
    command = [
        sys.executable,
        "-m",
        "barograph",
        "canary",
        f"--collector=tcp://127.0.0.1:{free_ports(1)}",
        "--seconds=1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 69
    assert "has not acknowledged the job" in done.stderr
