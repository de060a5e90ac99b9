"""The `barograph` command line: usage errors and missing extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from barograph import cli
from barograph.commands.parsers import parser_of

WITHOUT_EXTRAS = """
import sys
for name in ("duckdb", "pyarrow", "prometheus_client", "rich", "scipy", "matplotlib", "mpi4py"):
    sys.modules[name] = None
from barograph.cli import main
sys.exit(main(sys.argv[1:]))
"""


HEAVY = ("sklearn", "pandas", "scipy.optimize", "scipy.stats", "matplotlib", "polars", "distributed")
"""What takes from a fifth of a second to seconds to import."""
DAEMONS = ("barograph_collector.server", "barograph_modeler.forecasts.forecaster", "barograph_modeler.features.library",
           "barograph_modeler.processor", "barograph_modeler.serving.page", "barograph_alerts.processor",
           "barograph_alerts.restore", "barograph.site.app")  # fmt: skip
"""What daemons import once their settings are read."""
STUDIES = ("plan", "study", "replay")


def barograph(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barograph", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def agent_only(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_closed_pipe_is_no_error():
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as nobody:
        command = [sys.executable, "-m", "barograph", "--help"]
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_unknown_command_is_one_clear_line_with_the_nearest_and_status_2():
    done = barograph("statsu")
    expected = "barograph: unknown command 'statsu'; did you mean 'status'?\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert barograph("zzz").stderr == "barograph: unknown command 'zzz'; `barograph --help` lists them\n"


def test_an_older_python_is_one_line_and_no_traceback():
    code = "import sys; sys.version_info = (3, 10, 12, 'final', 0); import barograph.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = f"barograph: Python is {sys.version.split()[0]}, expected 3.11 or later\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_options_are_typed_whole(capsys):
    parsers = (parser_of(command) for command in cli.COMMANDS.values())
    assert [parser.prog for parser in parsers if parser and parser.allow_abbrev] == []
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", "--js"])
    assert (ended.value.code, "unrecognized arguments: --js" in capsys.readouterr().err) == (2, True)


def test_in_a_pipe_of_any_encoding_names_are_whole():
    code = """
from rich.table import Table
from barograph import cli, terminal
import types, sys
def main(words):
    table = Table("job")
    table.add_row("h\\u00e9at-" + 300 * "x")
    terminal.console().print(table)
    return 0
sys.modules["shown"] = types.SimpleNamespace(main=main)
cli.COMMANDS["shown"] = cli.Command("shown", "", "")
sys.exit(cli.main(["shown"]))
"""
    for encoding, name in (("ascii", "h\\xe9at-"), ("latin-1", "h\u00e9at-"), ("utf-8", "h\u00e9at-")):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert name + 300 * "x" in done.stdout.decode(encoding)


def test_help_names_every_command():
    done = barograph("--help")
    assert done.returncode == 0
    assert sorted(re.findall(r"^  (\w+) ", done.stdout, re.MULTILINE)) == sorted(cli.COMMANDS)
    assert barograph().returncode == 2


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_a_help_text(name, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert f"barograph {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "extra"), [(name, command.extra) for name, command in cli.COMMANDS.items() if command.extra]
)
def test_without_its_extra_a_command_says_which_to_install(name, extra):
    # The BSP program needs its extra to measure, not to explain itself.
    words = ["--workload", "ftq", "--intervals", "1"] if name == "bsp" else ["--help"]
    done = agent_only(name, *words)
    assert done.returncode == 3
    assert done.stderr.startswith(f"barograph: `{name}` needs the module ")
    assert done.stderr.endswith(f"pip install 'barograph[{extra}]'\n")


def test_run_needs_no_extra(monkeypatch, tmp_path):
    monkeypatch.setenv("BAROGRAPH_SPOOL", str(tmp_path))
    done = agent_only("run", "--drain", "0", "--collector", "tcp://127.0.0.1:1", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    assert "barograph: verdict   unknown: no collector answered at tcp://127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("name", ["run", "status", "spool", "modeler", "alerts"])
def test_an_invalid_collector_address_is_a_usage_error(name):
    done = barograph(name, "--collector", "foo", *(["--", "true"] if name == "run" else []))
    assert done.returncode == 2
    assert "argument --collector: collector is 'foo', expected tcp://HOST:PORT or ipc://PATH\n" in done.stderr


def test_a_command_runs_despite_an_invalid_collector_address_in_the_environment(monkeypatch):
    monkeypatch.setenv("BAROGRAPH_COLLECTOR", "foo")
    done = barograph("run", "--", "sh", "-c", "exit 5")
    assert (done.returncode, done.stderr) == (
        5,
        "barograph: not watching this run: collector is 'foo', expected tcp://HOST:PORT or ipc://PATH\n",
    )


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        ([one.module for name, one in cli.COMMANDS.items() if name not in STUDIES] + list(DAEMONS), HEAVY),
        ([cli.COMMANDS[name].module for name in ("up", "status", "nodes", "page", "sql", "keys")], ["scipy"]),
        ([cli.COMMANDS[name].module for name in ("status", "nodes", "work", "page", "predict")], ["duckdb"]),
        ([cli.COMMANDS[name].module for name in ("run", "spool", "doctor")], ["scipy", "pyarrow", "duckdb"]),
        ([cli.COMMANDS["run"].module], ["numpy", "zmq"]),
    ],
    ids=["all commands and daemons", "of the log", "that ask a collector", "of a node", "a launcher"],
)
def test_a_start_imports_nothing_that_takes_long_and_is_not_needed_yet(modules, forbidden):
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "barograph_agent" in loaded
    assert [name for name in forbidden if name in loaded] == []
