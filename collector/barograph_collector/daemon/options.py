"""A daemon's settings: read at the start from command line, environment and file, and again from the file on reload."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph_agent.settings import sources
from barograph_agent.settings.setting import Section, Setting
from barograph_agent.settings.sources import SITE_FILE, ConfigError, Value
from barograph_collector.daemon.service import Exit

REQUIRED = "required"
Check = Callable[[argparse.Namespace], None]
"""Raises ConfigError for settings that do not go together."""


class Configuration:
    """The settings in force, and where each comes from."""

    def __init__(
        self,
        section: Section,
        *,
        given: Mapping[str, str],
        environment: Mapping[str, str],
        file: Path | None,
        check: Check | None = None,
    ) -> None:
        """given: texts of the command line by setting. Raises ConfigError."""
        self.section = section
        self.file = file
        self._given = dict(given)
        self._environment = dict(environment)
        self._check = check
        self.values, self.applications = self._read()

    @property
    def options(self) -> argparse.Namespace:
        """The values by name."""
        return _options(self.values)

    def reload(self) -> list[str]:
        """Read again and take what may change; returns the names of what has changed and waits for a restart.

        Raises ConfigError, and nothing has changed.
        """
        values, applications = self._read()
        changed = {name for name, value in values.items() if value.value != self.values[name].value}
        reloading = {setting.name for setting in self.section.settings if setting.reloads}
        self.values |= {name: values[name] for name in reloading}
        self.applications = applications
        return sorted(changed - reloading)

    def _read(self) -> tuple[dict[str, Value], dict[str, dict[str, Any]]]:
        values = sources.resolve(self.section, given=self._given, environment=self._environment, file=self.file)
        for setting in self.section.settings:
            if setting.otherwise == REQUIRED and values[setting.name].value is None:
                variable = self.section.variable(setting)
                raise ConfigError(
                    f"{setting.option} is missing, expected it, {variable} or {setting.name} in [{self.section.name}]"
                )
        if self._check is not None:
            self._check(_options(values))
        return values, sources.applications(self.section.applications, self.file)


def add_options(parser: argparse.ArgumentParser, settings: Sequence[Setting]) -> None:
    """An option for each setting, and `--config`. What they hold without being given is None."""
    add_config(parser)
    for setting in settings:
        default = setting.default or setting.otherwise
        wanted: dict[str, Any] = {} if setting.alone is None else {"nargs": "?", "const": setting.alone}
        text = f"{setting.meaning} (default: {default})".replace("%", "%%")
        parser.add_argument(setting.option, metavar=setting.metavar, help=text, **wanted)


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option that names the file."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"settings of all daemons (default: $BAROGRAPH_CONFIG, else {SITE_FILE} where it exists)",
    )


def parse(
    parser: argparse.ArgumentParser,
    section: Section,
    argv: Sequence[str] | None,
    environment: Mapping[str, str],
    check: Check | None = None,
) -> Configuration:
    """Read the settings of a daemon. Ends the process with `Exit.USAGE` and one line where they are wrong."""
    add_options(parser, section.settings)
    options = parser.parse_args(argv)
    given = {name: value for name, value in vars(options).items() if name != "config" and value is not None}
    file = options.config or sources.site_file(environment)
    try:
        return Configuration(section, given=given, environment=environment, file=file, check=check)
    except ConfigError as error:
        parser.exit(Exit.USAGE, f"{parser.prog}: {error}\n")


def _options(values: Mapping[str, Value]) -> argparse.Namespace:
    return argparse.Namespace(**{name: value.value for name, value in values.items()})
