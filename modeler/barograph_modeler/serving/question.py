"""Questions about runtimes, parsed from the query string of a URL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from barograph_agent.protocol.tables import IDENTIFIER, MAX_RANKS

RISK: Final = 0.01
_NAMES: Final = (
    "app",
    "like",
    "ranks",
    "nodes",
    "cluster",
    "user",
    "requested",
    "risk",
    "curve",
    "intervals",
    "format",
)
_PARAM: Final = "param."
_FEATURE: Final = "feature."
_ASKED: Final = "asked."
ASKED_COLUMNS: Final = ("executable", "program", "script", "words", "inputs", "folder", "threads", "numbers", "reason")
MOST_FIELDS: Final = 500


class BadQuestion(ValueError):
    """An invalid question. The message has the field, its value and the expected values."""


class Question(NamedTuple):
    """A request for the runtime of an application at a scale. cluster: may be empty if the application has only one.

    ranks: 0 for those of the job `like`. risk: probability of exceeding the time limit. curve: whether to predict
    other scales too.
    """

    app: str
    ranks: int
    nodes: int | None = None
    cluster: str = ""
    params: Mapping[str, str] = {}
    risk: float = RISK
    curve: bool = False
    like: str = ""
    """A job: what is not given is as in it."""
    user: str = ""
    """Whose runs are asked for: the group of like work is theirs."""
    requested: float = math.inf
    """Seconds that the run may take: no limit is longer, unless runs like it were."""
    group: str | None = None
    """The group of like work that the question is about, empty for one that has not run; None where it is not known."""
    asked: Mapping[str, str] = {}
    """Columns of `works` of a run that has not begun; empty for a question without a command."""
    text: bool = False
    """Whether to answer as Prometheus text."""
    features: Mapping[str, float] = {}
    """Features of the run; if there are any, the model of features answers."""
    intervals: bool = False
    """Whether the lengths of intervals are asked for, not the runtime."""


def parse_question(query: str) -> Question:
    """Parse a query string. Raises BadQuestion."""
    fields: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise BadQuestion(f"the query has more than {MOST_FIELDS} fields") from None
    for name, value in pairs:
        if not _is_field(name):
            known = f"{', '.join(_NAMES)}, {_PARAM}NAME, {_FEATURE}NAME, {_ASKED}COLUMN"
            raise BadQuestion(f"{name[:80]!r} is no field, expected one of {known}")
        if name in fields:
            raise BadQuestion(f"{name[:80]} is given twice")
        fields[name] = value
    like = fields.get("like", "")
    if not fields.get("app") and not like:
        raise BadQuestion("app is missing, expected the name of an application, or like, a job")
    if "ranks" not in fields and not like:
        raise BadQuestion("ranks is missing, expected a whole number")
    ranks = _count("ranks", fields["ranks"]) if "ranks" in fields else 0
    nodes = _count("nodes", fields["nodes"]) if fields.get("nodes") else None
    if nodes is not None and ranks and nodes > ranks:
        raise BadQuestion(f"nodes is {nodes}, expected at most the {ranks} ranks")
    intervals = _choice("intervals", fields.get("intervals", "0"), ("0", "1")) == "1"
    if intervals and any(name.startswith(_FEATURE) for name in fields):
        raise BadQuestion("intervals are not predicted from features, expected one of the two")
    if intervals and fields.get("format") == "prometheus":
        raise BadQuestion("format is 'prometheus', expected json with intervals")
    return Question(
        app=fields.get("app", ""),
        like=like,
        user=fields.get("user", ""),
        requested=_number("requested", fields["requested"], 1.0, 1e12, "seconds from 1")
        if "requested" in fields
        else math.inf,
        asked={
            name.removeprefix(_ASKED): value
            for name, value in fields.items()
            if name.removeprefix(_ASKED) in ASKED_COLUMNS
        },
        ranks=ranks,
        nodes=nodes,
        cluster=fields.get("cluster", ""),
        params={name.removeprefix(_PARAM): value for name, value in fields.items() if name.startswith(_PARAM)},
        risk=_number("risk", fields.get("risk", str(RISK)), 1e-6, 0.5, "a probability from 0.000001 to 0.5"),
        curve=_choice("curve", fields.get("curve", "0"), ("0", "1")) == "1",
        text=_choice("format", fields.get("format", "json"), ("json", "prometheus")) == "prometheus",
        features={
            name.removeprefix(_FEATURE): _number(name, value)
            for name, value in fields.items()
            if name.startswith(_FEATURE)
        },
        intervals=intervals,
    )


def _is_field(name: str) -> bool:
    if name.startswith(_PARAM):
        return IDENTIFIER.fullmatch(name.removeprefix(_PARAM)) is not None
    if name.startswith(_ASKED):
        return name.removeprefix(_ASKED) in ASKED_COLUMNS
    return name in _NAMES or 0 < len(name.removeprefix(_FEATURE)) < len(name)


def _number(name: str, text: str, low: float = -math.inf, high: float = math.inf, wanted: str = "") -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and low <= number <= high):
        raise BadQuestion(f"{name[:80]} is {text[:80]!r}, expected {wanted or 'a finite number'}")
    return number


def _count(name: str, text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    if not 1 <= number <= MAX_RANKS:
        raise BadQuestion(f"{name} is {text[:80]!r}, expected a whole number from 1 to {MAX_RANKS}")
    return number


def _choice(name: str, text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise BadQuestion(f"{name} is {text[:80]!r}, expected {' or '.join(known)}")
    return text
