"""The parser of the whole command, and the completion scripts made from it."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from barograph.cli import COMMANDS, Command
from barograph.cli import main as barograph
from barograph.commands.parsers import parser_of, whole
from barograph.operate.files import installed


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found)


def test_the_whole_parser_has_each_command_with_its_own_help(capsys):
    found = commands(whole())
    assert list(found) == list(COMMANDS)
    for name, parser in found.items():
        with pytest.raises(SystemExit):
            barograph([name, "--help"])
        own = capsys.readouterr().out
        assert {option for option in parser._option_string_actions if option not in own} == set(), name


def test_a_command_without_its_extra_has_no_parser(monkeypatch):
    monkeypatch.delitem(sys.modules, "barograph.commands.sql", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert parser_of(COMMANDS["sql"]) is None


def test_a_command_that_does_not_parse_is_an_internal_error():
    with pytest.raises(TypeError, match=r"helpers\.silent\.main returned"):
        parser_of(Command("helpers.silent", "", "says nothing"))


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_for_each_shell_names_every_command(shell, capsys):
    assert barograph(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert not {name for name in COMMANDS if name not in script}
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_files_of_an_unknown_folder_are_none(capsys):
    assert barograph(["files", "nowhere"]) == 65
    assert capsys.readouterr().err == (
        "barograph files: none of 'nowhere' is installed, expected a package installed by pip\n"
    )
    assert all(path.is_absolute() for path in installed())
