"""Jinja environments of page and report. Values are escaped."""

from __future__ import annotations

from inspect import getmembers, isfunction

from jinja2 import Environment, PackageLoader, StrictUndefined

from barograph.views import words


def environment(package: str) -> Environment:
    """The templates of a package, with the functions of `words` as filters."""
    found = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= dict(getmembers(words, isfunction))
    return found
