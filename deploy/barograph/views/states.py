"""Displayed states of a job. Each has a word, a shape and a colour, so that colour alone never distinguishes two."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barograph.views.log import Row
from barograph.views.words import finite

ALARMS: Final = ("slow", "stalled")


class DisplayState(NamedTuple):
    """name: selects shape and colour. word: is displayed. rank: sorts, the most urgent first."""

    name: str
    word: str
    rank: int


STALLED: Final = DisplayState("stalled", "stalled", 0)
SLOW: Final = DisplayState("slow", "slow", 1)
RECOVERED: Final = DisplayState("recovered", "recovered", 2)
INCONCLUSIVE: Final = DisplayState("inconclusive", "inconclusive", 3)
HEALTHY: Final = DisplayState("healthy", "healthy", 4)
UNKNOWN: Final = DisplayState("unknown", "not judged", 5)
SILENT: Final = DisplayState("silent", "silent", 6)
LEGEND: Final = (STALLED, SLOW, RECOVERED, INCONCLUSIVE, HEALTHY, UNKNOWN, SILENT)
_BY_STATE: Final = {state.name: state for state in (STALLED, SLOW, INCONCLUSIVE, HEALTHY)}
KNOWN: Final = tuple(_BY_STATE)
_SCORE: Final = re.compile(r"\(score ([0-9]+(?:\.[0-9]+)?)[,)]")


def display_state(score: Row, silent: bool = False) -> DisplayState:
    """The state of a row with `state` and `score`: recovered where it alarmed and its score is no longer above 1.

    silent: whether the job has long sent nothing. A job with a stall alarm stays stalled: it sends nothing by nature.
    """
    state = _BY_STATE.get(score["state"] or "", UNKNOWN)
    alarmed = state.name in ALARMS and finite(score["score"]) and score["score"] > 1
    if silent and not (alarmed and state is STALLED):
        return SILENT
    return RECOVERED if state.name in ALARMS and not alarmed else state


def shown(row: Row, silent: bool = False) -> Row:
    """A row with its displayed state in `shown`, and with score and slowdown as its verdict has them, or None.

    The verdict of an alarm has the score that raised it, that of a healthy job the highest one. The slowdown of a
    healthy job cannot be distinguished from 1.
    """
    state = display_state(row, silent)
    score, slowdown = row["score"], row["slowdown"]
    if found := _SCORE.search(row["sentence"] or ""):
        score = float(found[1])
    if row.get("imported"):
        row = row | {"sentence": "unknown: imported from other records, not watched"}
    elif state is UNKNOWN and row.get("exit_status"):
        row = row | {"sentence": f"unknown: it failed with exit status {row['exit_status']}"}
    return row | {
        "shown": state,
        "score_shown": score if finite(score) and state not in (UNKNOWN, SILENT) else None,
        "slowdown_shown": slowdown if finite(slowdown) and state not in (HEALTHY, UNKNOWN, SILENT) else None,
    }
