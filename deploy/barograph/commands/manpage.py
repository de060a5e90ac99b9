"""Generates the man page barograph(1) from all parsers: python -m barograph.commands.manpage > barograph.1"""

from __future__ import annotations

import time
from importlib.metadata import version as version_of
from typing import Final

from argparse_manpage.manpage import Manpage

from barograph.commands.parsers import whole

_SEE_ALSO: Final = "Settings, metrics and guides are in the documentation that comes with the sources."


def page(version: str, date: str) -> str:
    """The page in roff. date: YYYY-MM-DD."""
    manpage = Manpage(whole())
    manpage.description = "always-on performance watch for MPI jobs"
    manpage.manual, manpage.source, manpage.date = "Barograph", f"barograph {version}", date
    manpage.add_section("see also", ">", _SEE_ALSO)
    heading, rest = str(manpage).split("\n", 1)
    # man does not recognize a date with escaped hyphens.
    return f"{heading.replace(chr(92) + '-', '-')}\n{rest}"


if __name__ == "__main__":
    print(page(version_of("barograph"), time.strftime("%Y-%m-%d", time.gmtime())), end="")
