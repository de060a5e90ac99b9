"""Columns that identify a run: they vary with the runs and contain nothing of what determines a runtime.

A model that learns them fits the order of the runs, such as a machine that became slower over a campaign.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

NAMES: Final = frozenset({"run", "job", "row", "id", "ids", "idx", "index", "uuid"})
"""Words that a name consists of if it is one of an identifier: run, jobid, Run-ID, job_index."""
_WORD: Final = "|".join(sorted(NAMES, key=len, reverse=True))
_NAMED: Final = re.compile(rf"[\W\d_]*(?:(?:{_WORD})[\W\d_]*)+")


def identifier_reason(name: str, cells: Sequence[str]) -> str | None:
    """Why a column identifies its runs, or None if it does not. cells: one per run, in the order of the file.

    By its name, or because all cells differ and are texts, or whole numbers that only rise or only fall.

    >>> identifier_reason("job_id", ["7", "7", "9"]), identifier_reason("grid", ["8", "4", "8"])
    ('named as an identifier', None)
    >>> identifier_reason("epoch", ["1506809047", "1506809912", "1506810377"])
    'whole numbers in the order of the lines'
    """
    if _NAMED.fullmatch(name.lower()):
        return "named as an identifier"
    if len(cells) < 2 or len(set(cells)) < len(cells):
        return None
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return "another text in each line"
    if not all(number.is_integer() for number in numbers):
        return None
    steps = [after - before for before, after in pairwise(numbers)]
    if all(step > 0 for step in steps) or all(step < 0 for step in steps):
        return "whole numbers in the order of the lines"
    return None
