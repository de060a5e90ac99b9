"""Displayed states of a job. Each has a word, a shape and a colour, so that colour alone never distinguishes two."""

from __future__ import annotations

from typing import Final, NamedTuple

from barograph.views.log import Row
from barograph.views.words import finite

ALARMS: Final = ("slow", "stalled", "fast")


class DisplayState(NamedTuple):
    """name: selects shape and colour. word: is displayed. rank: sorts, the most urgent first."""

    name: str
    word: str
    rank: int


STALLED: Final = DisplayState("stalled", "stalled", 0)
SLOW: Final = DisplayState("slow", "slow", 1)
FAST: Final = DisplayState("fast", "fast", 2)
RECOVERED: Final = DisplayState("recovered", "recovered", 3)
INCONCLUSIVE: Final = DisplayState("inconclusive", "inconclusive", 4)
HEALTHY: Final = DisplayState("healthy", "healthy", 5)
UNKNOWN: Final = DisplayState("unknown", "not judged", 6)
SILENT: Final = DisplayState("silent", "silent", 7)
LEGEND: Final = (STALLED, SLOW, FAST, RECOVERED, INCONCLUSIVE, HEALTHY, UNKNOWN, SILENT)
_BY_STATE: Final = {state.name: state for state in (STALLED, SLOW, FAST, INCONCLUSIVE, HEALTHY)}


def display_state(score: Row, silent: bool = False) -> DisplayState:
    """The state of a row with `state` and `score`: recovered where it alarmed and its score is no longer above 1.

    silent: whether the job has long sent nothing. A job with a stall alarm stays stalled: it sends nothing by nature.
    """
    state = _BY_STATE.get(score["state"] or "", UNKNOWN)
    alarmed = state.name in ALARMS and finite(score["score"]) and score["score"] > 1
    if silent and not (alarmed and state is STALLED):
        return SILENT
    return RECOVERED if state.name in ALARMS and not alarmed else state
