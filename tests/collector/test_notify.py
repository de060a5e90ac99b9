"""Notifications to a supervisor, and the format of log lines."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from barograph_agent.settings.sources import Configuration
from barograph_alerts.settings import AlertsSettings
from barograph_collector.daemon.logs import log_to_stderr
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.reload import Reload
from barograph_collector.server import Collector
from barograph_collector.storage.store import Store
from helpers.log import DEADLINE_SECONDS, wait_until


class Supervisor:
    """The other end of $NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.channel.bind(str(path))
        self.channel.setblocking(False)
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "4000000"}

    def received(self) -> list[str]:
        sent = []
        while True:
            try:
                sent.append(self.channel.recv(1024).decode())
            except BlockingIOError:
                return sent


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    one = Supervisor(tmp_path / "notify")
    yield one
    one.channel.close()


def test_the_watchdog_is_notified_twice_per_timeout(
    supervisor: Supervisor,
) -> None:
    now = 100.0
    notifier = Notifier(supervisor.environment, lambda: now)
    sent = []
    for now in (100.0, 100.5, 101.9, 102.0, 103.0, 104.1, 120.0):  # noqa: B007 - the clock of the notifier
        notifier.alive()
        sent.append(len(supervisor.received()))
    assert sent == [1, 0, 0, 1, 0, 1, 1]


def test_no_watchdog_no_notification(supervisor: Supervisor) -> None:
    for environment in (
        {"NOTIFY_SOCKET": supervisor.environment["NOTIFY_SOCKET"]},
        supervisor.environment | {"WATCHDOG_PID": "1"},
        supervisor.environment | {"WATCHDOG_USEC": "soon"},
    ):
        Notifier(environment).alive()
    assert supervisor.received() == []
    Notifier(supervisor.environment | {"WATCHDOG_PID": str(os.getpid())}).alive()
    assert supervisor.received() == ["WATCHDOG=1"]


def test_notifications_never_block_or_fail(supervisor: Supervisor) -> None:
    notifier = Notifier(supervisor.environment)
    for _ in range(2000):
        notifier.ready()
    supervisor.channel.close()
    notifier.ready()
    Notifier({"NOTIFY_SOCKET": "/nowhere"}).stopping()
    Notifier({}).stopping()


def test_the_begin_and_the_end_of_a_reload_are_notified(supervisor: Supervisor, tmp_path: Path) -> None:
    file = tmp_path / "barograph.toml"
    file.write_text("")
    configuration = Configuration(AlertsSettings, environment={}, file=file)
    applied: list[float] = []
    registry = CollectorRegistry()
    notifier = Notifier(supervisor.environment, lambda: 5.0)
    now = 100.0
    reload = Reload(
        configuration, lambda: applied.append(configuration.settings.margin), notifier, registry, lambda: now
    )

    def exported() -> tuple[float | None, float | None]:
        name, labels = "barograph_config_last_reload_success", {"daemon": "alerts"}
        return (
            registry.get_sample_value(f"{name}ful", labels),
            registry.get_sample_value(f"{name}_timestamp_seconds", labels),
        )

    assert exported() == (1, 100)
    now = 200.0
    file.write_text("[alerts]\nmargin = 'x'")
    reload.run()
    assert (applied, exported()) == ([], (0, 100))
    file.write_text("[alerts]\nmargin = 0.5")
    reload.run()
    assert (applied, exported()) == ([0.5], (1, 200))
    assert supervisor.received() == ["RELOADING=1\nMONOTONIC_USEC=5000000", "READY=1"] * 2


def test_the_pulse_of_a_collector_is_that_of_its_receive_thread(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        collector = Collector(store, "tcp://127.0.0.1:0")
        collector.start()
        assert collector.pulse()
        wait_until(collector.pulse, "the receive thread answers")
        frozen, released = threading.Event(), threading.Event()

        def freeze() -> None:
            frozen.set()
            released.wait()

        collector.mailbox.put(freeze)
        assert frozen.wait(DEADLINE_SECONDS)
        collector.pulse()
        assert not any(collector.pulse() for _ in range(100))
        released.set()
        wait_until(collector.pulse, "the receive thread answers again")
        assert collector.stop(DEADLINE_SECONDS)


def logged(capfd: pytest.CaptureFixture[str]) -> str:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        log = logging.getLogger("barograph_test")
        log.warning("disk %s", "low")
        try:
            raise ValueError("odd")
        except ValueError:
            log.exception("failed")
    finally:
        root.handlers[:], root.level = before
    return capfd.readouterr().err


def test_json_lines_are_objects_with_the_trace_of_an_exception(capfd: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("alerts", "json", environment={})
    first, second = map(json.loads, logged(capfd).splitlines())
    assert first.pop("at") > 1e9
    assert first == {"level": "warning", "daemon": "alerts", "logger": "barograph_test", "message": "disk low"}
    assert second["message"] == "failed"
    assert "ValueError: odd" in second["trace"]


def test_every_line_for_journald_begins_with_its_priority(capfd: pytest.CaptureFixture[str]) -> None:
    status = os.fstat(sys.stderr.fileno())
    log_to_stderr("alerts", environment={"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    lines = logged(capfd).splitlines()
    assert lines[:2] == ["<4>disk low", "<3>failed"]
    assert {line[:3] for line in lines[1:]} == {"<3>"}


def test_text_has_time_level_and_daemon_unless_stderr_is_the_journal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("alerts", environment={"JOURNAL_STREAM": "1:2"})
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ WARNING alerts disk low\n", logged(capfd))
