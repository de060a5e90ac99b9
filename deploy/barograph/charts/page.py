"""The page of `barograph predict --plot`: the answer, runtime and speedup over ranks, and the shares of the parts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from barograph.charts.figure import key
from barograph.charts.parts import parts_chart
from barograph.charts.projection import projection
from barograph.views.advice import sentences
from barograph.views.words import listed, plural

_PAGE: Final = Markup("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); color: var(--ink); }}
body {{ font-family: var(--sans); line-height: 1.5; }}
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 0; }}
p {{ margin: 0.25rem 0; white-space: pre-wrap; }}
</style>
<h1>{title}</h1>
{answer}
<h2>Runtime and speedup</h2>
{projection}
{parts}
</html>
""")
_LINE: Final = Markup("<p>{}</p>")
_FIGURE: Final = Markup("<figure>{}<figcaption>{}</figcaption></figure>")
_PARTS: Final = Markup("<h2>Where the time goes</h2>\n")


def plot(answer: Mapping[str, Any], path: Path) -> None:
    """Draw an answer that has a curve to an HTML file. Raises OSError."""
    title = ", ".join(filter(None, (f"{answer['app']} on {answer['cluster']}", listed(answer["params"]))))
    limit = ", ".join(filter(None, ("largest scale run", answer["speedup"] and "ideal speedup")))
    asked = plural(answer["ranks"], "rank")
    meanings = key(observed="run", trace="expected", band="95 % of runs", asked=asked, limit=limit)
    parts = parts_chart(answer)
    page = _PAGE.format(
        title=title,
        style=Markup(files("barograph.charts").joinpath("static/chart.css").read_text(encoding="utf-8")),
        answer=Markup("\n").join(_LINE.format(line) for line in sentences(answer)),
        projection=_FIGURE.format(projection(answer, speedup=True) or "", meanings),
        parts=_PARTS + _FIGURE.format(parts.chart, parts.key) if parts else "",
    )
    path.write_text(page, encoding="utf-8")
