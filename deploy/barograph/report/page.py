"""The templates of the pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment
from markupsafe import Markup, escape

from barograph.charts.figure import key
from barograph.views.templates import environment

TYPES: Final = {"gumbel": "I (Gumbel)", "frechet": "II (Fréchet)", "weibull": "III (Weibull)"}

METHODS: Final = {"tracked": "of the values", "gev": "of the GEV", "bootstrap": "of its bootstrap"}
"""Methods of bands, as headings."""


def render(template: str, values: Mapping[str, Any]) -> str:
    """A self-contained page."""
    return _templates().get_template(template).render(values, now=datetime.now(UTC).timestamp())


@cache
def _templates() -> Environment:
    templates = environment("barograph.report")
    style = Markup(files("barograph.charts").joinpath("static/chart.css").read_text(encoding="utf-8"))
    templates.globals |= {"types": TYPES, "methods": METHODS, "site_of": _site_of, "key": key, "style": style}
    return templates


def _site_of(text: str | None) -> Markup:
    """The innermost function of a call path without its offset, with line breaks allowed between names."""
    text = text or "unknown"
    return escape(text.partition(" < ")[0].rpartition("+0x")[0] or text).replace("::", Markup("::<wbr>"))
