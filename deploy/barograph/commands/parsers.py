"""The parser of the whole `barograph` command, for completion and the man page."""

from __future__ import annotations

import argparse
import importlib
from typing import NoReturn
from unittest import mock

from barograph.cli import COMMANDS, Command


class _Asked(BaseException):
    """Carries the parser out of a command that is about to use it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def whole() -> argparse.ArgumentParser:
    """A parser with every command as a subcommand. A command whose extra is not installed has no options in it."""
    parser = argparse.ArgumentParser(
        prog="barograph", description="Watches MPI jobs from outside and says when one is slower than its history."
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        found = parser_of(command)
        # Its own --help comes along.
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
    """The parser of a command, or None where a module that it needs is not installed.

    A command makes its parser in `main`, so `main` is called and stopped where it would parse.
    """
    try:
        main = importlib.import_module(command.module).main
        with mock.patch.object(argparse.ArgumentParser, "parse_args", _stop):
            main([])
    except _Asked as asked:
        return asked.parser
    except ModuleNotFoundError as error:
        if not command.extra or (error.name or "").partition(".")[0].startswith("barograph"):
            raise
        return None
    raise TypeError(f"{command.module}.main returned, expected that it parses its arguments")


def _stop(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
    raise _Asked(parser)
