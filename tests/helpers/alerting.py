"""The real Prometheus and the real Alertmanager beside a real `barograph up`, and a webhook that takes their calls."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.up import Up, free_ports

RULES = Path(__file__).parents[2] / "alerts/rules"
HURRIED_SECONDS = 3


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        assert not os.environ.get("CI"), f"{name} is missing: tests/install-packages installs it"
        pytest.skip(f"{name} is missing")
    return path


class Webhook:
    """Takes what Alertmanager sends."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        calls = self.calls

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def of(self, name: str) -> list[dict[str, Any]]:
        return [call for call in self.calls if call["groupLabels"]["alertname"] == name]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@contextlib.contextmanager
def running(log: Path, url: str, *command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server for as long as the block lasts, from when `url` answers."""
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(url), f"{url} answers, see {log}", every=0.1)
            assert process.poll() is None, log.read_text()
            yield process
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)


def alerting(directory: Path, port: int) -> contextlib.AbstractContextManager[object]:
    """An Alertmanager on this port with the directory's `alertmanager.yml`."""
    return running(
        directory / "alertmanager.log",
        f"http://127.0.0.1:{port}/-/ready",
        tool("prometheus-alertmanager"),
        f"--config.file={directory / 'alertmanager.yml'}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )


@contextlib.contextmanager
def watched(directory: Path, webhook: Webhook, *arguments: str, patience: str = "3s") -> Iterator[Up]:
    """Barograph, Prometheus and Alertmanager; rules and routes as shipped, but alarms of jobs wait for seconds only.

    arguments: of `barograph up`. patience: how long alarms of jobs have to last. The yielded `Up` has the address of
    the Alertmanager as `alertmanager`. Its `hurry()` makes alarms of daemons wait for seconds only, too: until then a
    daemon has to be away for as long as the rules say, which on a busy machine none is.
    """
    prometheus = tool("prometheus")
    ports = free_ports(2)
    rules = (RULES / "barograph.rules.yml").read_text()
    rules = rules.replace("for: 30s", f"for: {patience}")
    (directory / "rules.yml").write_text(rules)
    routes = (RULES / "alertmanager.example.yml").read_text()
    routes = routes.replace("http://127.0.0.1:9095/", f"http://127.0.0.1:{webhook.server.server_port}/")
    routes = routes.replace("group_wait: 10s", "group_wait: 1s").replace("group_interval: 5m", "group_interval: 2s")
    (directory / "alertmanager.yml").write_text(routes)
    with Up(directory, *arguments) as up:
        targets = ", ".join(f'"127.0.0.1:{up.port + number}"' for number in (1, 2, 3))
        (directory / "prometheus.yml").write_text(
            f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n"
            f"rule_files: [{directory / 'rules.yml'}]\n"
            f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{ports + 1}']}}]}}]}}\n"
            "scrape_configs: [{job_name: barograph, honor_labels: true, "
            f"static_configs: [{{targets: [{targets}]}}]}}]\n"
        )
        with (
            alerting(directory, ports + 1),
            running(
                directory / "prometheus.log",
                f"http://127.0.0.1:{ports}/-/ready",
                prometheus,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{ports}",
                # What it sends while it reads its configuration again is lost, and would be sent again after a minute.
                "--rules.alert.resend-delay=2s",
            ) as server,
        ):

            def hurry() -> None:
                address = f"http://127.0.0.1:{ports}/api/v1/rules"
                if HURRIED_SECONDS in _durations(address):
                    return
                (directory / "rules.yml").write_text(rules.replace("for: 1m", f"for: {HURRIED_SECONDS}s"))
                server.send_signal(signal.SIGHUP)
                wait_until(lambda: HURRIED_SECONDS in _durations(address), "Prometheus has read the rules", every=0.1)

            up.alertmanager = f"http://127.0.0.1:{ports + 1}"  # type: ignore[attr-defined]
            up.hurry = hurry  # type: ignore[attr-defined]
            yield up


def _durations(url: str) -> set[float]:
    with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
        groups = json.load(answer)["data"]["groups"]
    return {rule["duration"] for group in groups for rule in group["rules"] if rule["name"] == "BarographDaemonDown"}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
