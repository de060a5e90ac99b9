"""The man page barograph(1), from the parsers of all commands: python -m barograph.commands.manpage > barograph.1"""

from __future__ import annotations

import sys
import time
from importlib.metadata import version as version_of
from typing import Final

from argparse_manpage.manpage import Manpage

from barograph.commands.parsers import whole

_SEE_ALSO: Final = "The settings, metrics and guides by reader are in the documentation that comes with the sources."


def page(version: str, date: str) -> str:
    """The page in roff. date: YYYY-MM-DD."""
    made = Manpage(whole())
    made.description = "always-on performance watch for MPI jobs"
    made.manual, made.source, made.date = "Barograph", f"barograph {version}", date
    made.add_section("see also", ">", _SEE_ALSO)
    heading, rest = str(made).split("\n", 1)
    # A hyphen that is escaped makes the date none.
    return f"{heading.replace(chr(92) + '-', '-')}\n{rest}"


def main() -> int:
    """Print the page of the version that is installed."""
    print(page(version_of("barograph"), time.strftime("%Y-%m-%d", time.gmtime())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
