"""`barograph backtest`: accuracy of Barograph's predictions on existing measurements."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Sequence
from typing import Final

from barograph.cli import MISSING_EXTRA, Parser
from barograph_collector.daemon.service import Exit
from barograph_lab.columns import note, unusable
from barograph_lab.studies.series import BadTable

SUBJECTS: Final = {
    "bands": "bands",
    "scaling": "scaling",
    "sets": "sets",
    "runtime": "runtime",
    "alerts": "alerts",
    "recognise": "recognise",
    "limits": "limits",
    "remaining": "remaining",
}
"""The subjects, and the module of this package that adds the options of each."""


def _parser(subject: str | None) -> argparse.ArgumentParser:
    """Of one subject, whose module alone is imported, or of all."""
    parser = Parser(
        prog="barograph backtest",
        description="Score predictions on existing measurements.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    modules = list(SUBJECTS.values()) if subject is None else [SUBJECTS[subject]]
    added = [importlib.import_module(f"barograph_lab.backtest.{module}").add_parser(subjects) for module in modules]
    # One page of help for all subjects.
    parser.epilog = "\n".join(one.format_help() for one in added)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Print the results of the methods; 65 if the file cannot be used."""
    parser = _parser(arguments[0] if arguments and arguments[0] in SUBJECTS else None)
    options = parser.parse_args(arguments)
    if (getattr(options, "join", None) is None) != (getattr(options, "on", None) is None):
        parser.error("--join and --on go together, expected both or none")
    if getattr(options, "node", None) is not None and getattr(options, "rank", None) is None:
        parser.error("--node needs --rank: hosts are of ranks")
    if getattr(options, "dask", None) is not None and importlib.util.find_spec("distributed") is None:
        note("--dask needs distributed: pip install 'barograph[dask]'")
        return MISSING_EXTRA
    try:
        options.execute(options)
    except (BadTable, OSError) as error:
        raise unusable(error) from error
    return Exit.OK
