"""States of a job as they are shown: a word, a shape and a colour, so that none of them is needed to tell."""

from __future__ import annotations

from typing import Final, NamedTuple

from barograph.views.log import Row
from barograph.views.words import known

ALARMS: Final = ("slow", "stalled", "fast")


class Shown(NamedTuple):
    """`name` chooses shape and colour; `word` is displayed; `rank` sorts, the most urgent first."""

    name: str
    word: str
    rank: int


STALLED: Final = Shown("stalled", "stalled", 0)
SLOW: Final = Shown("slow", "slow", 1)
FAST: Final = Shown("fast", "fast", 2)
RECOVERED: Final = Shown("recovered", "recovered", 3)
HEALTHY: Final = Shown("healthy", "healthy", 4)
UNKNOWN: Final = Shown("unknown", "not judged", 5)
SILENT: Final = Shown("silent", "silent", 6)
LEGEND: Final = (STALLED, SLOW, FAST, RECOVERED, HEALTHY, UNKNOWN, SILENT)
_BY_STATE: Final = {state.name: state for state in (STALLED, SLOW, FAST, HEALTHY)}


def shown(score: Row, silent: bool = False) -> Shown:
    """The state of a row with `state` and `score`. A job that alarmed and whose score is down again has recovered.

    silent: nothing has come of it for long; a job that is known to be stalled is silent by nature.
    """
    state = _BY_STATE.get(score["state"] or "", UNKNOWN)
    alarmed = state.name in ALARMS and known(score["score"]) and score["score"] > 1
    if silent and not (alarmed and state is STALLED):
        return SILENT
    return RECOVERED if state.name in ALARMS and not alarmed else state
