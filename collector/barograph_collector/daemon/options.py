"""A daemon's settings as options of its command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph_agent.settings.setting import Section, settings
from barograph_agent.settings.sources import SITE_FILE, ConfigError, Configuration, S, site_file
from barograph_collector.daemon.service import Exit


def add_options(parser: argparse.ArgumentParser, section: type[Section]) -> None:
    """Add an option for each setting, and `--config`. What they hold without being given is None."""
    add_config(parser)
    for setting in settings(section).values():
        about = setting.about
        default = setting.default_text or about.otherwise
        wanted: dict[str, Any] = {} if about.alone is None else {"nargs": "?", "const": about.alone}
        text = f"{about.meaning} (default: {default})".replace("%", "%%")
        parser.add_argument(setting.option, metavar=setting.form.metavar, help=text, **wanted)


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
    """Read the settings of a daemon. Ends the process with `Exit.USAGE` and one line where they are wrong."""
    add_options(parser, section)
    options = parser.parse_args(argv)
    given = {name: value for name, value in vars(options).items() if name != "config" and value is not None}
    file = options.config or site_file(environment)
    try:
        return Configuration(section, given=given, environment=environment, file=file, complete=True)
    except ConfigError as error:
        parser.exit(Exit.USAGE, f"{parser.prog}: {error}\n")
