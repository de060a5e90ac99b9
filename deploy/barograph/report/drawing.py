"""How all figures of a report look, and how they come into the page: as SVG that stands in it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}
WIDE: Final = 10
"""A range of values that needs a logarithmic axis."""


@contextmanager
def styled(height: float) -> Iterator[Figure]:
    """An empty figure, drawn in the style of reports. height: in inches."""
    with mpl.rc_context(
        {
            "font.size": 10,
            "font.family": "sans-serif",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
        }
    ):
        yield Figure(figsize=(8, height), layout="constrained")


def svg(figure: Figure, label: str) -> Markup:
    """A figure as an element of HTML, with a label for those who do not see it."""
    text = io.StringIO()
    # The salt keeps the names of markers and clips apart, which all figures of a page share.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": label, "svg.id": None}):
        figure.savefig(text, format="svg", metadata=NO_METADATA, transparent=True)
    element = text.getvalue().partition("<svg ")[2]
    return Markup(f'<svg role="img" aria-label="{escape(label)}" {element}')


def plain(axes: Axes) -> None:
    """A logarithmic axis where the values range widely, and numbers as people write them."""
    low, high = axes.dataLim.intervaly
    if low > 0 and high > WIDE * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < WIDE**2 * low else (1,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))


def label_above(axes: Axes) -> None:
    """The legend, above the axes."""
    axes.legend(frameon=False, fontsize=9, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
