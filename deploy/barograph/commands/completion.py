"""`barograph completion bash|zsh`: a script that completes commands, options and their choices."""

from __future__ import annotations

from collections.abc import Sequence

import shtab

from barograph.cli import Parser
from barograph.commands.parsers import whole
from barograph_collector.daemon.service import Exit


def main(arguments: Sequence[str]) -> int:
    """Print the script."""
    parser = Parser(prog="barograph completion", description="Print a script that completes `barograph` in a shell.")
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    options = parser.parse_args(arguments)
    print(shtab.complete(whole(), options.shell))
    return Exit.OK
