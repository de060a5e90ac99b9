"""Jinja environments of page and report. Values are escaped."""

from __future__ import annotations

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from barograph.views import words

_FILTERS: Final = (
    *("age", "clock", "finite", "iso", "milliseconds", "number", "params", "percent", "plural", "seconds", "share"),
    *("span", "utc", "verdict"),
)


def environment(package: str) -> Environment:
    """The templates of a package, with functions of `words` as filters."""
    found = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {name: getattr(words, name) for name in _FILTERS}
    return found
