"""The reference of the configuration file, made from the structs that daemons read it with.

`python -m barograph.operate.config_reference > docs/reference/configuration.md` writes it; a test compares.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

from barograph.operate.config import SECTIONS
from barograph_agent.settings.setting import Section, declared

_HEAD: Final = """\
# Configuration reference

Every key of `/etc/barograph/barograph.toml`, made by `python -m barograph.operate.config_reference` from the structs that the
daemons read it with. [How to use it](../operator/configuration.md).

*reload*: a daemon takes a new value on SIGHUP; without it, after a restart.
"""


def page() -> str:
    """The whole page, Markdown."""
    return "\n".join([_HEAD, *(line for section in SECTIONS for line in _section(section))])


def _section(section: type[Section]) -> Iterator[str]:
    yield f"## {section.table}\n"
    yield f"{inspect.cleandoc(section.__doc__ or '')}\n"
    yield "| key | type | default | expected | environment | reload | meaning |"
    yield "|---|---|---|---|---|---|---|"
    for setting in declared(section).values():
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
