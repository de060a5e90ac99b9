"""The command line of a daemon: its settings as options, and errors at the start."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from barograph_agent.settings.setting import Setting, declared
from barograph_agent.settings.sources import SITE_FILE, ConfigError, Configuration, S, site_file
from barograph_collector.daemon.logs import log_to_stderr
from barograph_collector.daemon.service import CannotStart, Exit
from barograph_collector.daemon.settings import DaemonSettings

D = TypeVar("D", bound=DaemonSettings)


def run_daemon(
    section: type[D], description: str, serve: Callable[[Configuration[D]], int], argv: Sequence[str] | None
) -> int:
    """Run a daemon with the settings of its command line, environment and file; returns its exit status.

    description: for --help. serve: runs until a signal; raises CannotStart.
    """
    parser = argparse.ArgumentParser(prog=f"barograph {section.table}", description=description, allow_abbrev=False)
    configuration = parse(parser, section, argv, os.environ)
    # `barograph up` may run several collectors.
    log_to_stderr(os.environ.get("BAROGRAPH_DAEMON", section.table), configuration.settings.log_format)
    try:
        return serve(configuration)
    except CannotStart as error:
        print(f"barograph {section.table}: {error}", file=sys.stderr)
        return error.status


def add_option(parser: argparse.ArgumentParser, setting: Setting) -> None:
    """Add the option of one setting, whose value is None where it is not given."""
    about = setting.about
    value: dict[str, Any] = {} if about.alone is None else {"nargs": "?", "const": about.alone}
    text = f"{about.meaning} (default: {setting.default_text or about.otherwise})".replace("%", "%%")
    parser.add_argument(setting.option, metavar=setting.form.metavar, help=text, **value)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the file."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"settings of all daemons (default: $BAROGRAPH_CONFIG, else {SITE_FILE} where it exists)",
    )


def parse(
    parser: argparse.ArgumentParser, section: type[S], argv: Sequence[str] | None, environment: Mapping[str, str]
) -> Configuration[S]:
    """Read the settings of a daemon. Ends the process with `Exit.USAGE` and one line where they are invalid."""
    add_config(parser)
    for setting in declared(section).values():
        add_option(parser, setting)
    options = parser.parse_args(argv)
    given = {name: value for name, value in vars(options).items() if name != "config" and value is not None}
    file = options.config or site_file(environment)
    try:
        return Configuration(section, given=given, environment=environment, file=file, complete=True)
    except ConfigError as error:
        parser.exit(Exit.USAGE, f"{parser.prog}: {error}\n")
