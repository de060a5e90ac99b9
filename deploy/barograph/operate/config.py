"""`barograph config`: show the settings of the daemons and their origins, or check a configuration file."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from barograph.cli import CommandError, Parser
from barograph.site.settings import PageSettings
from barograph.terminal import console
from barograph_agent.settings.agent import AgentSettings
from barograph_agent.settings.setting import Section, as_text
from barograph_agent.settings.sources import APPLICATIONS, SITE_FILE, ConfigError, Configuration, Value, site_file
from barograph_alerts.settings import AlertsSettings
from barograph_collector.daemon.options import add_config
from barograph_collector.daemon.service import Exit
from barograph_collector.lake.catalog import redacted
from barograph_collector.settings import CollectorSettings
from barograph_modeler.settings import ModelerSettings

SECTIONS: Final[Sequence[type[Section]]] = (
    CollectorSettings,
    ModelerSettings,
    AlertsSettings,
    PageSettings,
    AgentSettings,
)
Effective = dict[str, dict[str, Value]]


def effective(file: Path | None, environment: Mapping[str, str]) -> Effective:
    """All settings by section and name, validated, with those of single applications. Raises ConfigError."""
    found: Effective = {}
    for section in SECTIONS:
        configuration = Configuration(section, environment=environment, file=file)
        found[section.table] = configuration.values
        try:
            configuration.settings.check()
        except ConfigError as error:
            raise ConfigError(f"[{section.table}] {error}") from None
        for app, own in configuration.applications.items():
            table = found.setdefault(f'{APPLICATIONS}."{app}"', {})
            table |= {name: Value(value, str(file)) for name, value in own.items()}
    return found


def show(options: argparse.Namespace) -> None:
    """Print the effective settings."""
    file = options.config or site_file(os.environ)
    found = effective(file, os.environ)
    if options.json:
        settings = {
            section: {name: {"value": _plain(value.value), "from": value.origin} for name, value in values.items()}
            for section, values in found.items()
        }
        print(json.dumps({"file": str(file) if file else None, "settings": settings}, indent=2))
        return
    out = console()
    out.print(f"file: {file or f'none ({SITE_FILE} does not exist)'}", highlight=False)
    for section, values in found.items():
        table = Table(title=Text(f"[{section}]"), title_justify="left")
        for column in ("key", "value", "from"):
            table.add_column(column)
        for name, value in values.items():
            text = "-" if value.value in (None, ()) else redacted(as_text(value.value))
            style = "dim" if value.origin == "default" else ""
            table.add_row(*map(Text, (name, text, value.origin)), style=style)
        out.print(table)


def check(options: argparse.Namespace) -> None:
    """Check a file, without the environment."""
    file = options.file or options.config or site_file(os.environ) or SITE_FILE
    found = effective(file, {})
    own = sum(value.origin != "default" for values in found.values() for value in values.values())
    print(f"{file}: well, {own} settings")


def _plain(value: Any) -> Any:
    match value:
        case Path() | (str(), int()):  # a path, or an address and its port
            return as_text(value)
        case str():
            return redacted(value)
    return value


def main(arguments: Sequence[str]) -> int:
    """Show or check the configuration; 65 for an invalid file."""
    options = _parser().parse_args(arguments)
    try:
        options.verb(options)
    except ConfigError as error:
        raise CommandError(str(error)) from None
    return Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph config",
        description="Show the settings of all daemons, or check a file of them.",
        epilog="options of show:\n  --json         one JSON object instead of tables",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(parser)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    showing = verbs.add_parser("show", help="print every setting and where it comes from")
    showing.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    showing.set_defaults(verb=show)
    checking = verbs.add_parser("check", help="say whether a file can be used")
    checking.add_argument("file", type=Path, nargs="?", metavar="FILE", help="(default: as the daemons find it)")
    checking.set_defaults(verb=check)
    return parser
