"""The parser of the whole `barograph` command, for completion and the man page."""

from __future__ import annotations

import argparse
import importlib
from typing import NoReturn
from unittest import mock

from barograph.cli import COMMANDS, DESCRIPTION, Command


class _Parsing(BaseException):
    """Carries the parser out of a command that is about to parse its arguments."""


def whole() -> argparse.ArgumentParser:
    """A parser with every command as a subcommand; without options where the command's extra is not installed."""
    parser = argparse.ArgumentParser(prog="barograph", description=DESCRIPTION)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        found = parser_of(command)
        # A parent brings its own --help.
        commands.add_parser(
            name,
            help=command.help,
            description=found.description if found else command.help,
            epilog=found.epilog if found else None,
            parents=[found] if found else [],
            add_help=found is None,
        )
    return parser


def parser_of(command: Command) -> argparse.ArgumentParser | None:
    """The parser of a command, or None where its extra is not installed.

    A command builds its parser in `main`, so `main` is called and interrupted when it parses.
    """
    try:
        main = importlib.import_module(command.module).main
        with mock.patch.object(argparse.ArgumentParser, "parse_args", _stop):
            main([])
    except _Parsing as parsing:
        parser: argparse.ArgumentParser = parsing.args[0]
        return parser
    except ModuleNotFoundError as error:
        if not command.lacks(error):
            raise
        return None
    raise TypeError(f"{command.module}.main returned, expected that it parses its arguments")


def _stop(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
    raise _Parsing(parser)
