"""Templates of pages and reports. Whatever comes from the log is escaped there."""

from __future__ import annotations

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from barograph.views import words

_FILTERS: Final = (
    *("age", "clock", "iso", "known", "milliseconds", "number", "params", "percent", "plural", "said", "seconds"),
    *("share", "span", "times", "utc"),
)


def environment(package: str) -> Environment:
    """The templates of a package, all of them read; each function of `words` that they use is a filter."""
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
