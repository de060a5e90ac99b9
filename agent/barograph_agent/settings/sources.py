"""Resolution of settings: command line, else environment, else file, else default.

The file is TOML with a table per daemon, one for the agent, and one per application with settings of its own:

    [alerts]
    margin = 0.05

    [application."lammps"]
    margin = 0.1
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barograph_agent.settings.setting import REQUIRED, Section, Setting, declared

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
S = TypeVar("S", bound=Section)


class ConfigError(ValueError):
    """An invalid configuration. The text names file or variable, key, value and what was expected."""


class Value(NamedTuple):
    """The value of a setting and its origin: a path, a variable, `command line` or `default`."""

    value: Any
    origin: str


class Configuration(Generic[S]):
    """The settings of a section with the origin of each, and the overrides of applications."""

    def __init__(
        self,
        section: type[S],
        *,
        environment: Mapping[str, str],
        file: Path | None,
        given: Mapping[str, str] | None = None,
        complete: bool = False,
    ) -> None:
        """given: values on the command line as text, by key. complete: check for missing and conflicting settings.

        Raises ConfigError.
        """
        self.section = section
        self.file = file
        self._environment = environment
        self._given = given or {}
        self._complete = complete
        self.values, self.applications = self._read()

    @property
    def settings(self) -> S:
        """The values."""
        return _struct(self.section, self.values)

    def reload(self) -> list[str]:
        """Reread the file and apply reloadable settings; returns the changed keys that require a restart.

        Raises ConfigError without changing anything.
        """
        values, applications = self._read()
        changed = {name for name, value in values.items() if value.value != self.values[name].value}
        reloading = {name for name, setting in declared(self.section).items() if setting.about.reloads}
        self.values |= {name: values[name] for name in reloading}
        self.applications = applications
        return sorted(changed - reloading)

    def _read(self) -> tuple[dict[str, Value], dict[str, dict[str, Any]]]:
        written = from_file(self.section, self.file)
        values = {name: self._value(setting, written) for name, setting in declared(self.section).items()}
        if self._complete:
            for name, setting in declared(self.section).items():
                if setting.about.otherwise == REQUIRED and values[name].value is None:
                    where = f"{setting.variable} or {name} in [{self.section.table}]"
                    raise ConfigError(f"{setting.option} is missing, expected it, {where}")
            _struct(self.section, values).check()
        return values, _applications(self.section, self.file)

    def _value(self, setting: Setting, written: Mapping[str, Any]) -> Value:
        name, variable = setting.name, setting.variable
        if name in self._given:
            return Value(_parsed(setting, self._given[name], f"argument {setting.option}"), "command line")
        if self._environment.get(variable):
            return Value(_parsed(setting, self._environment[variable], variable), variable)
        return Value(written[name], str(self.file)) if name in written else Value(setting.default, "default")


def _struct(section: type[S], values: Mapping[str, Value]) -> S:
    return section(**{name: value.value for name, value in values.items()})


def site_file(environment: Mapping[str, str]) -> Path | None:
    """The file named by BAROGRAPH_CONFIG, else the default one if it exists, else None."""
    if given := environment.get(VARIABLE):
        return Path(given)
    # Path.exists raises PermissionError for a directory that is closed to this user.
    return SITE_FILE if os.access(SITE_FILE, os.F_OK) else None


def from_file(section: type[Section], file: Path | None) -> dict[str, Any]:
    """The settings of a section in a file, checked, by name. Raises ConfigError."""
    if file is None:
        return {}
    return _check_table(declared(section), _tables(file).get(section.table, {}), f"{file}: [{section.table}]")


def _applications(section: type[Section], file: Path | None) -> dict[str, dict[str, Any]]:
    """The overrides in a file, by application."""
    if file is None or not section.per_application:
        return {}
    known = {name: declared(section)[name] for name in section.per_application}
    found = {}
    for name, table in _tables(file).get(APPLICATIONS, {}).items():
        where = f"{file}: [{APPLICATIONS}.{name!r}]"
        if not isinstance(table, dict):
            raise ConfigError(f'{where} is {table!r}, expected a table [{APPLICATIONS}."NAME"]')
        found[name] = _check_table(known, table, where)
    return found


def _tables(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: {reason}, expected a configuration in TOML") from None
    known = (*TABLES, APPLICATIONS)
    for name, table in tables.items():
        if name not in known:
            raise ConfigError(f"{path}: [{name}] is unknown, expected one of {', '.join(known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} is {table!r}, expected a table [{name}]")
    return tables


def _check_table(known: Mapping[str, Setting], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    values = {}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{where} {name} is unknown, expected one of {', '.join(known)}")
        setting = known[name]
        expected = setting.form.expected
        if not isinstance(value, _TYPES[setting.kind]) or isinstance(value, bool):
            raise ConfigError(f"{where} {name}: {value!r}, expected a {setting.kind}: {expected}")
        text = value
        if isinstance(value, list):
            if not all(isinstance(word, str) and "," not in word for word in value):
                raise ConfigError(f"{where} {name}: {value!r}, expected a list of texts: {expected}")
            text = ",".join(value)
        values[name] = _parsed(setting, str(text), f"{where} {name}")
    return values


def _parsed(setting: Setting, text: str, where: str) -> Any:
    try:
        return setting.read(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from None
