"""States of a job as they are shown: a word, a shape and a colour, so that none of them is needed to tell."""

from __future__ import annotations

from typing import Final, NamedTuple

from barograph.site.log import Row
from barograph.site.words import known

ALARMS: Final = ("slow", "stalled", "fast")


class Shown(NamedTuple):
    """`name` chooses shape and colour; `word` is said; `rank` sorts, what needs somebody first."""

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
_BY_STATE: Final = {"stalled": STALLED, "slow": SLOW, "fast": FAST, "healthy": HEALTHY}


def shown(score: Row, silent: bool = False) -> Shown:
    """What a row with `state` and `score` is called. A job that alarmed and whose score is down again has recovered.

    silent: it has said nothing for long; one that is known to be stalled says nothing by nature.
    """
    state = _BY_STATE.get(score["state"] or "", UNKNOWN)
    alarmed = state.name in ALARMS and known(score["score"]) and score["score"] > 1
    if silent and not (alarmed and state is STALLED):
        return SILENT
    return RECOVERED if state.name in ALARMS and not alarmed else state
