"""The reference of the configuration file, made from the structs that daemons read it with.

`python -m barograph.operate.config_reference > docs/reference/configuration.md` writes it; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barograph.operate.config import SECTIONS
from barograph_agent.settings.setting import Section, settings

_HEAD: Final = """\
# Configuration reference

Every key of `/etc/barograph/barograph.toml`, made by `python -m barograph.operate.config_reference` from the structs that the
daemons read it with. [How to use it](../operator/configuration.md).

*reload*: a daemon takes a new value on SIGHUP; without it, after a restart.
"""
_TEXTS: Final = {
    "collector": "The log. `barograph collector` has each key as an option, with hyphens.",
    "modeler": "Bands, paces and `/predict`. `barograph modeler` has each key as an option.",
    "alerts": "Judges running jobs. `barograph alerts` has each key as an option.",
    "page": "The page for people without Grafana. `barograph page` has each key as an option.",
    "agent": "What runs on compute nodes: `barograph run`, `spool` and `doctor` read it there, and of the others the "
    "collector's address.",
}


def page() -> str:
    """The whole page, Markdown."""
    return "\n".join([_HEAD, *(line for section in SECTIONS for line in _section(section))])


def _section(section: type[Section]) -> Iterator[str]:
    yield f"## {section.table}\n"
    yield f"{_TEXTS[section.table]}\n"
    yield "| key | type | default | expected | environment | reload | meaning |"
    yield "|---|---|---|---|---|---|---|"
    for setting in settings(section).values():
        about = setting.about
        default = f"`{setting.default_text}`" if setting.default_text else about.otherwise
        meaning = f"{about.meaning[0].upper()}{about.meaning[1:]}."
        cells = [f"`{setting.name}`", setting.kind, default, setting.form.expected, f"`{setting.variable}`"]
        yield f"| {' | '.join([*cells, 'yes' if about.reloads else '', meaning])} |"
    yield ""
    if section.per_application:
        names = " and ".join(f"`{name}`" for name in section.per_application)
        yield f'{names} may be otherwise for single applications, in a table `[application."NAME"]`.\n'


if __name__ == "__main__":
    print(page(), end="")
