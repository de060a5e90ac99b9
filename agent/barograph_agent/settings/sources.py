"""Where settings come from: the command line, else the environment, else the file, else their defaults.

The file is TOML, one table for each daemon, one for the agent, and one for each application that is judged differently:

    [alerts]
    margin = 0.05

    [application."lammps"]
    margin = 0.1
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from barograph_agent.settings.setting import Section, Setting

VARIABLE: Final = "BAROGRAPH_CONFIG"
SITE_FILE: Final = Path("/etc/barograph/barograph.toml")
TABLES: Final = ("collector", "modeler", "alerts", "page", "agent")
APPLICATIONS: Final = "application"
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "number": (int, float),
    "whole number": (int,),
    "size": (int, str),
    "list": (list,),
}


class ConfigError(ValueError):
    """A configuration that cannot be used. The text names file or variable, key, value and what was expected."""


class Value(NamedTuple):
    """What a setting is, and which of the four it comes from: a path, a variable, `command line` or `default`."""

    value: Any
    origin: str


def site_file(environment: Mapping[str, str]) -> Path | None:
    """The file that BAROGRAPH_CONFIG names, else the usual one where it exists, else None."""
    if given := environment.get(VARIABLE):
        return Path(given)
    return SITE_FILE if SITE_FILE.exists() else None


def read_file(path: Path) -> dict[str, Any]:
    """The tables of a file. Raises ConfigError."""
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}, expected a configuration in TOML") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}, expected a configuration in TOML") from None
    known = (*TABLES, APPLICATIONS)
    for name, table in tables.items():
        if name not in known:
            raise ConfigError(f"{path}: [{name}] is unknown, expected one of {', '.join(known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} is {table!r}, expected a table [{name}]")
    return tables


def resolve(
    section: Section, *, given: Mapping[str, str], environment: Mapping[str, str], file: Path | None
) -> dict[str, Value]:
    """Every setting of a section by name. given: texts of the command line. Raises ConfigError."""
    written = from_file(section, file)
    values = {}
    for setting in section.settings:
        variable = section.variable(setting)
        if setting.name in given:
            values[setting.name] = Value(
                _parsed(setting, given[setting.name], f"argument {setting.option}"), "command line"
            )
        elif environment.get(variable):
            values[setting.name] = Value(_parsed(setting, environment[variable], variable), variable)
        elif setting.name in written:
            values[setting.name] = Value(written[setting.name], str(file))
        else:
            default = None if setting.default is None else setting.parse(setting.default)
            values[setting.name] = Value(default, "default")
    return values


def from_file(section: Section, file: Path | None) -> dict[str, Any]:
    """What a file says of a section, checked. Raises ConfigError."""
    if file is None:
        return {}
    return check_table(section.settings, read_file(file).get(section.name, {}), f"{file}: [{section.name}]")


def applications(settings: Sequence[Setting], file: Path | None) -> dict[str, dict[str, Any]]:
    """What a file says of single applications: by name, only what is said. Raises ConfigError."""
    if file is None or not settings:
        return {}
    found = {}
    for name, table in read_file(file).get(APPLICATIONS, {}).items():
        where = f"{file}: [{APPLICATIONS}.{name!r}]"
        if not isinstance(table, dict):
            raise ConfigError(f'{where} is {table!r}, expected a table [{APPLICATIONS}."NAME"]')
        found[name] = check_table(settings, table, where)
    return found


def check_table(settings: Sequence[Setting], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a table of the file. Raises ConfigError."""
    known = {setting.name: setting for setting in settings}
    values = {}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{where} {name} is unknown, expected one of {', '.join(known)}")
        setting = known[name]
        if not isinstance(value, _TYPES[setting.kind]) or isinstance(value, bool):
            raise ConfigError(f"{where} {name}: {value!r}, expected a {setting.kind}: {setting.expected}")
        if isinstance(value, list):
            if not all(isinstance(word, str) and "," not in word for word in value):
                raise ConfigError(f"{where} {name}: {value!r}, expected a list of texts: {setting.expected}")
            value = ",".join(value)  # noqa: PLW2901 - the form that every other source has
        values[name] = _parsed(setting, str(value), f"{where} {name}")
    return values


def _parsed(setting: Setting, value: str, where: str) -> Any:
    try:
        return setting.parse(value)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from None
