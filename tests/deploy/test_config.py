"""The configuration: sources of settings, errors, and reloads."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.cli import main as barograph
from barograph.operate import config
from barograph_agent.settings import agent
from barograph_agent.settings.setting import Section, Setting, declared
from barograph_agent.settings.sources import ConfigError, Configuration
from barograph_alerts.settings import AlertsSettings
from barograph_collector.daemon.options import parse
from barograph_collector.settings import CollectorSettings
from barograph_modeler.settings import ModelerSettings
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.up import Up, free_ports

ALPHA = "BAROGRAPH_ALERTS_ALPHA"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "barograph.toml"


def alerts(*words: str, environment: dict[str, str] | None = None) -> Configuration[AlertsSettings]:
    return parse(argparse.ArgumentParser(prog="barograph alerts"), AlertsSettings, words, environment or {})


def test_precedence_is_command_line_environment_file_default(file: Path) -> None:
    file.write_text("[alerts]\nalpha = 0.03\nmargin = 1\n")
    at = f"--config={file}"
    sources = [
        alerts(at, "--alpha=0.01", environment={ALPHA: "0.02"}),
        alerts(at, environment={ALPHA: "0.02"}),
        alerts(environment={"BAROGRAPH_CONFIG": str(file)}),
        alerts(),
    ]
    assert [one.values["alpha"] for one in sources] == [
        (0.01, "command line"),
        (0.02, ALPHA),
        (0.03, str(file)),
        (0.01, "default"),
    ]
    assert sources[2].settings.margin == 1.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[alerts]\nalpha = 2", "[alerts] alpha: '2', expected a number between 0 and 1"),
        (
            "[alerts]\nalpha = 'x'",
            "[alerts] alpha: 'x', expected a number: between 0 and 1",
        ),
        ("[alerts]\nalpha = true", "[alerts] alpha: True, expected a number: between 0 and 1"),
        ("[alerts]\nalhpa = 0.1", "[alerts] alhpa is unknown, expected one of collector, key, metrics, "),
        ("[alert]\nalpha = 0.1", "[alert] is unknown, expected one of collector, modeler, alerts, page, agent, "),
        ("alerts = 1", "alerts is 1, expected a table [alerts]"),
        ("[alerts]\nlabels = ['account']", "[alerts] labels: 'account', expected one of user"),
        ("[alerts]\nlabels = 'user'", "[alerts] labels: 'user', expected a list: names out of user"),
        ('[application."lammps"]\nmargin = -1', "[application.'lammps'] margin: '-1', expected a number "),
        ('[application."lammps"]\nwindow = 1', "[application.'lammps'] window is unknown, expected one of "),
        ("[collector]\nkeep_bytes = '5 GB'", "[collector] keep_bytes: '5 GB' is no size, expected bytes"),
        ("[collector]\nmetrics = '7451'", "[collector] metrics: '7451' is no address, expected HOST:PORT"),
        ("[agent]\napps = '('", "[agent] apps: '(': missing ), unterminated subpattern at position 0, expected "),
        ("[agent]\nbudget = 0", "[agent] budget: '0', expected rows a second, above 0 and at most 1e+06"),
        ("[alerts", "Expected ']' at the end of a table declaration"),
    ],
)  # fmt: skip
def test_an_invalid_file_is_one_line_with_file_key_value_and_expectation(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file.write_text(text)
    assert barograph(["config", "check", str(file)]) == 65
    error = capsys.readouterr().err
    assert error.startswith(f"barograph config: {file}: {said}")
    assert error.count("\n") == 1


def test_contradictory_settings_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for section, text, said in [
        ("collector", "listen = 'tcp://0.0.0.0:7450'", "listen: 'tcp://0.0.0.0:7450' is not a loopback address"),
        ("collector", "munge = ''", "munge: expected keys with it"),
        (
            "modeler",
            "metrics = '0.0.0.0:7452'",
            "metrics: '0.0.0.0:7452' is not a loopback address",
        ),
        ("page", "listen = '10.0.0.1:80'", "listen: '10.0.0.1:80' is not a loopback address"),
    ]:
        file.write_text(f"[{section}]\n{text}\n")
        assert barograph(["config", "check", str(file)]) == 65
        assert f"[{section}] {said}" in capsys.readouterr().err


def test_a_daemon_with_an_invalid_configuration_ends_with_one_line_and_status_2(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("[alerts]\nalpha = 7\n")
    for words, environment, said in [
        ([f"--config={file}"], {}, f"{file}: [alerts] alpha: '7', expected a number between 0 and 1"),
        ([], {ALPHA: "8"}, f"{ALPHA}: '8', expected a number between 0 and 1"),
        (["--alpha=9"], {}, "argument --alpha: '9', expected a number between 0 and 1"),
        (["--config=/nowhere"], {}, "/nowhere: No such file or directory, expected a configuration in TOML"),
    ]:
        with pytest.raises(SystemExit) as ended:
            alerts(*words, environment=environment)
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"barograph alerts: {said}\n"


def test_a_required_setting_may_come_from_anywhere(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def collector(*words: str, environment: dict[str, str] | None = None) -> Any:
        parser = argparse.ArgumentParser(prog="barograph collector")
        return parse(parser, CollectorSettings, words, environment or {}).settings.state

    file.write_text("[collector]\nstate = '/a'\n")
    assert collector(f"--config={file}") == Path("/a")
    assert collector(environment={"BAROGRAPH_COLLECTOR_STATE": "/b"}) == Path("/b")
    with pytest.raises(SystemExit):
        collector()
    assert (
        "--state is missing, expected it, BAROGRAPH_COLLECTOR_STATE or state in [collector]" in capsys.readouterr().err
    )


def test_show_prints_effective_settings_and_their_origins(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('[alerts]\nlabels = ["user"]\n[application."lammps"]\nmargin = 0.1\n')
    monkeypatch.setenv(ALPHA, "0.05")
    assert barograph(["config", f"--config={file}", "show", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["settings"]
    assert said["alerts"]["alpha"] == {"value": 0.05, "from": ALPHA}
    assert said["alerts"]["labels"] == {"value": ["user"], "from": str(file)}
    assert said["alerts"]["metrics"] == {"value": "127.0.0.1:7453", "from": "default"}
    assert said['application."lammps"'] == {"margin": {"value": 0.1, "from": str(file)}}
    assert barograph(["config", f"--config={file}", "show"]) == 0
    assert re.search(rf"alpha +│ 0\.05 +│ {ALPHA}", capsys.readouterr().out)


@given(st.sampled_from([(s, one) for s in config.SECTIONS for one in declared(s).values()]), st.text(max_size=20))
def test_any_text_for_any_key_is_accepted_or_refused_with_the_key(
    case: tuple[type[Section], Setting], value: str
) -> None:
    section, setting = case
    said = ""
    try:
        Configuration(section, given={setting.name: value}, environment={}, file=None)
    except ConfigError as error:
        said = str(error)
    assert not said or said.startswith(f"argument {setting.option}: ")


@pytest.mark.parametrize(
    ("section", "key", "text", "expected"),
    [
        (CollectorSettings, "rate", "inf", "a number above 0"),
        (ModelerSettings, "refit", "nan", "a number of at least 0"),
        (AlertsSettings, "margin", "100", "a number from 0 to 100"),
        (AlertsSettings, "alpha", "0", "a number between 0 and 1"),
        (ModelerSettings, "seed", "1.5", "a whole number"),
        (ModelerSettings, "classes", "0", "a whole number of at least 1"),
        (AlertsSettings, "log_format", "xml", "text or json"),
        (AlertsSettings, "labels", "user, job", "one of user"),
    ],
)
def test_the_expectation_follows_from_the_type_and_its_constraints(
    section: type[Section], key: str, text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        Configuration(section, given={key: text}, environment={}, file=None)
    wrong = text.rpartition(", ")[2]
    assert str(refusal.value) == f"argument {declared(section)[key].option}: {wrong!r}, expected {expected}"


def test_every_default_is_valid_for_its_key() -> None:
    for section in config.SECTIONS:
        for setting in declared(section).values():
            assert setting.default is None or setting.read(setting.default_text) == setting.default


def test_a_reload_applies_all_reloadable_keys_or_none(file: Path) -> None:
    file.write_text("[alerts]\nmargin = 0.1\n")
    now = alerts(f"--config={file}", "--alpha=0.2")
    file.write_text('[alerts]\nmargin = 0.3\nmetrics = "127.0.0.1:1"\n[application."x"]\nalpha = 0.5\n')
    assert now.reload() == ["metrics"]
    assert (now.settings.margin, now.settings.metrics, now.settings.alpha) == (0.3, ("127.0.0.1", 7453), 0.2)
    assert now.applications == {"x": {"alpha": 0.5}}
    file.write_text('[alerts]\nmargin = 0.4\n[application."x"]\nalpha = 5\n')
    with pytest.raises(ConfigError, match=r"\[application.'x'\] alpha: '5', expected"):
        now.reload()
    assert (now.settings.margin, now.applications) == (0.3, {"x": {"alpha": 0.5}})


def test_the_agent_table_provides_unset_variables(file: Path) -> None:
    file.write_text('[agent]\ncollector = "tcp://log:1"\nbudget = 100\nspool_bytes = "64M"\n')
    given = {"BAROGRAPH_CONFIG": str(file), "BAROGRAPH_BUDGET": "7", "HOME": "/h"}
    found = agent.environment(given)
    assert found == {**given, "BAROGRAPH_COLLECTOR": "tcp://log:1", "BAROGRAPH_SPOOL_BYTES": str(64 * 2**20)}
    file.write_text("[agent]\nbudget = -1\n")
    found, complaint = agent.environment_or_complaint(given)
    assert found == given
    assert complaint == f"{file}: [agent] budget: '-1', expected rows a second, above 0 and at most 1e+06"


def test_a_command_reads_the_collector_from_the_file_and_continues_without_an_invalid_one(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"BAROGRAPH_CONFIG": str(file)}
    file.write_text('[agent]\ncollector = "tcp://log:1"\n')
    assert agent.endpoint(environment) == "tcp://log:1"
    assert agent.endpoint(environment | {"BAROGRAPH_COLLECTOR": "tcp://mine:2"}) == "tcp://mine:2"
    file.write_text('[agent]\ncollector = "log"\n')
    assert agent.endpoint(environment) == "tcp://127.0.0.1:7450"
    said = f"barograph: {file}: [agent] collector: collector is 'log', expected tcp://HOST:PORT or ipc://PATH"
    assert capsys.readouterr().err == f"{said}; going on without this file\n"


def run(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BAROGRAPH_")}
    environment |= {"BAROGRAPH_CONFIG": str(file), "BAROGRAPH_SPOOL": str(file.parent / "spool")}
    command = [sys.executable, "-m", "barograph", "run", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_run_continues_despite_an_invalid_site_file(file: Path) -> None:
    file.write_text("[agent]\nbudget = 'many'\n")
    done = run(file, "--drain", "0", "--", "true")
    assert done.returncode == 0
    assert f"barograph: {file}: [agent] budget: 'many', expected a number: " in done.stderr
    assert "; running without this file\n" in done.stderr


@pytest.mark.process
def test_sighup_applies_valid_settings_and_keeps_the_old_ones_if_invalid(tmp_path: Path) -> None:
    file = tmp_path / "barograph.toml"
    file.write_text("[alerts]\nmargin = 0.1\n")
    with Up(tmp_path, f"--config={file}") as service:
        file.write_text("[alerts]\nmargin = 'x'\n")
        service.process.send_signal(signal.SIGHUP)
        service.wait_for(f"configuration not read: {file}: [alerts] margin: 'x', expected a number")
        service.wait_for_metric("alerts", r'barograph_config_last_reload_successful{daemon="alerts"} 0\.0')
        file.write_text("[alerts]\nmargin = 0.2\n[collector]\nkeep_days = 3\n[modeler]\nseed = 4\n")
        service.process.send_signal(signal.SIGHUP)
        service.wait_for_metric("alerts", r'barograph_config_last_reload_successful{daemon="alerts"} 1\.0')
        service.wait_for("modeler changed, needs a restart: seed")
        assert service.process.poll() is None


@pytest.mark.process
def test_up_uses_addresses_and_directories_of_the_configuration(tmp_path: Path) -> None:
    port = free_ports(5)
    file = tmp_path / "barograph.toml"
    state = tmp_path / "the-state"
    file.write_text(
        f"[collector]\nstate = '{state}'\nlisten = 'tcp://127.0.0.1:{port}'\nmetrics = '127.0.0.1:{port + 3}'\n"
        f"[modeler]\nmetrics = '127.0.0.1:{port + 1}'\n[alerts]\nmetrics = '127.0.0.1:{port + 2}'\n"
        f"[page]\nlisten = '127.0.0.1:{port + 4}'\nlog_format = 'json'\n"
    )
    log = tmp_path / "log"
    words = [sys.executable, "-m", "barograph", "up", f"--config={file}"]
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as process:
        try:
            wait_until(lambda: "ready:" in log.read_text() or process.poll() is not None, "all are ready")
            assert process.poll() is None, log.read_text()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_SECONDS)
    said = log.read_text()
    assert f"collector listening on tcp://127.0.0.1:{port}, log in {state}/log.duckdb" in said
    assert f"metrics on http://127.0.0.1:{port + 3}/metrics" in said
    assert f"modeler following the log at tcp://127.0.0.1:{port}, metrics on http://127.0.0.1:{port + 1}/" in said
    assert '"daemon": "page"' in said
