"""The units and the hooks on a machine that systemd has booted, installed by the commands of the operator's page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from helpers.booted import PREFIX, UNITS, Machine, booted, install, this_installation
from helpers.hooks import unhurried
from helpers.log import wait_until
from helpers.mpi import REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    for one in booted(tmp_path_factory.mktemp("booted"), this_installation()):
        install(one)
        yield one


def commands() -> list[str]:
    """What the page says to type, but for the installation with pip and for looking at it."""
    text = (REPOSITORY / "docs/operator/running.md").read_text().partition("## systemd")[2]
    lines = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    found = [
        line for line in lines if not re.match(r"python3 |/opt/barograph/bin/pip |systemctl status|journalctl", line)
    ]
    assert found[-1] == "systemctl enable --now barograph.target"
    return found


def journal(machine: Machine, unit: str, *options: str) -> str:
    return machine.run("journalctl", "--unit", unit, "--output=cat", "--no-pager", *options)


def wait_active(machine: Machine) -> None:
    deadline = time.monotonic() + 180
    while not all(machine.show(unit, "ActiveState") == "active" for unit in UNITS):
        said = "".join(journal(machine, unit)[-1000:] for unit in UNITS)
        assert time.monotonic() < deadline, said
        assert all(int(machine.show(unit, "NRestarts")) < 3 for unit in UNITS), said
        time.sleep(0.5)


def pid(machine: Machine, unit: str) -> int:
    return int(machine.show(unit, "MainPID"))


@pytest.fixture(scope="module")
def service(machine: Machine) -> Machine:
    """The service as the page installs it."""
    for variable, value in machine.variables.items():
        # All that is peculiar here is where this Python finds its own library.
        machine.write(
            "/etc/systemd/system/barograph-.service.d/here.conf", f"[Service]\nEnvironment={variable}={value}\n"
        )
    for line in commands():
        machine.run("/bin/sh", "-c", line)
    wait_active(machine)
    return machine


def test_all_daemons_run_and_answer_and_the_log_is_private(service: Machine) -> None:
    assert service.run("systemctl", "is-enabled", "barograph.target").strip() == "enabled"
    assert "Alarms: none" in service.run(str(PREFIX / "bin/barograph"), "status")
    for path in ("/var/lib/barograph", "/etc/barograph/keys"):
        assert service.run("stat", "--format=%U %a", path).strip() == "barograph 700"
    for unit in UNITS:
        assert service.run("ps", "-o", "user=", "-p", str(pid(service, unit))).strip() == "barograph"
        assert "Traceback" not in journal(service, unit)
    wait_until(lambda: "listening on" in journal(service, UNITS[0]), "its first line is in the journal")
    assert "listening on" not in journal(service, UNITS[0], "--priority=warning")


def test_a_reload_reads_the_configuration_again(service: Machine) -> None:
    before = [pid(service, unit) for unit in UNITS]
    service.run("systemctl", "reload", *UNITS[:3])
    for unit in UNITS[:3]:
        wait_until(lambda unit=unit: "configuration read again" in journal(service, unit), f"{unit} says so")
    assert [pid(service, unit) for unit in UNITS] == before


def test_a_killed_or_frozen_daemon_is_restarted(service: Machine) -> None:
    unit = UNITS[0]
    service.write(f"/etc/systemd/system/{unit}.d/soon.conf", "[Service]\nWatchdogSec=15s\nTimeoutAbortSec=2s\n")
    service.run("systemctl", "daemon-reload")
    for signal in ("KILL", "STOP"):
        before = pid(service, unit)
        service.run("systemctl", "kill", f"--signal={signal}", unit)
        wait_until(lambda before=before: pid(service, unit) not in (0, before), f"{unit} is back after {signal}")
        wait_active(service)


def test_a_sidecar_runs_in_its_own_scope_until_the_job_ends(service: Machine) -> None:
    settings = " ".join(f"{variable}={value}" for variable, value in service.variables.items())
    # Hooks clear what finds this Python's own library.
    service.write("/usr/local/bin/here", f'#!/bin/sh\nexec env {settings} {PREFIX}/bin/python "$@"\n', 0o755)
    service.run("cp", "-r", "deploy/hooks", "/etc/barograph/")
    unhurried(service.root / "etc/barograph/hooks/bounded")
    service.write("/etc/barograph/hooks.conf", "python=/usr/local/bin/here\nshim=/etc/hostname\n")
    hook = ["/bin/sh", "/etc/barograph/hooks/bounded"]
    job = ["slurm-7@n1", "65534", "65534"]

    def scopes() -> list[str]:
        text = service.run("systemctl", "list-units", "--type=scope", "--plain", "--no-legend", "barograph-*")
        return [line.split()[0] for line in text.splitlines()]

    def watching() -> list[str]:
        pattern = "^[^ ]*python .*barograph_agent.sidecar.nodewatch"
        return service.run("pgrep", "--full", "--uid", "65534", pattern, check=False).split()

    service.run(*hook, "job-begin", *job, "nobody")
    # The scope that was made to see whether that works is there for a moment longer.
    wait_until(lambda: len(watching()) == len(scopes()) == 1, "the sidecar runs")
    (scope,) = scopes()
    assert scope.startswith("barograph-slurm-7-n1-")
    assert scope in service.run("cat", f"/proc/{watching()[0]}/cgroup")
    limits = service.run("systemctl", "show", scope, "-p", "MemoryMax", "-p", "TasksMax", "-p", "RuntimeMaxUSec")
    assert set(limits.split("\n")) >= {"MemoryMax=536870912", "TasksMax=32"}
    assert "infinity" not in limits
    service.run(*hook, "job-end", *job)
    wait_until(lambda: not watching() and not scopes(), "sidecar and scope have ended")


def test_the_target_stops_all_units_in_order(service: Machine) -> None:
    service.run("systemctl", "stop", "barograph.target", *UNITS)
    for unit in UNITS:
        assert (service.show(unit, "ActiveState"), service.show(unit, "Result")) == ("inactive", "success")
        assert service.show(unit, "ExecMainStatus") == "0"
