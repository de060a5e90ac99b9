"""The page of `barograph predict --plot`: runtime and speedup over ranks with the runs, and the shares of the parts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from barograph.charts.parts import parts_chart
from barograph.charts.projection import projection
from barograph.views.words import listed

_PAGE: Final = Markup("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ max-width: 62rem; margin: 2rem auto; background: var(--paper); color: var(--ink); font-family: var(--sans); }}
{style}
</style>
<h1>{title}</h1>
{charts}
</html>
""")


def plot(answer: Mapping[str, Any], path: Path) -> None:
    """Draw an answer that has a curve to an HTML file. Raises OSError."""
    title = ", ".join(filter(None, (f"{answer['app']} on {answer['cluster']}", listed(answer["params"]))))
    parts = parts_chart(answer)
    charts = [projection(answer, speedup=True) or "", *((parts.chart, parts.key) if parts else ())]
    style = Markup(files("barograph.charts").joinpath("static/chart.css").read_text(encoding="utf-8"))
    path.write_text(_PAGE.format(title=title, style=style, charts=Markup("\n").join(charts)), encoding="utf-8")
