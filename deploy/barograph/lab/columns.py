"""What commands that read tables share: options that list names, and words to the user beside the result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TypeVar

from barograph_modeler.studies.series import BadTable

Model = TypeVar("Model")


def names(text: str) -> list[str]:
    """The type of an option that lists columns or models, with commas between. Raises argparse.ArgumentTypeError."""
    found = text.split(",")
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r}, expected names of columns with commas between them")
    return found


def chosen(wanted: Sequence[str], known: Mapping[str, Model]) -> list[Model]:
    """The models that --models names, `all` for all of them. Raises BadTable for one that there is not."""
    if wanted == ["all"]:
        return list(known.values())
    if unknown := [name for name in wanted if name not in known]:
        raise BadTable(f"--models: no model {unknown[0]!r}, expected all or some of {', '.join(known)}")
    return [known[name] for name in wanted]


def say(text: str) -> None:
    """Tell something about a backtest, beside its result."""
    print(f"barograph backtest: {text}", file=sys.stderr)
