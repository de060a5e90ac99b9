"""What a question leaves out: parameters that all runs which it may be about have had; and doubts about the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barograph_modeler.forecasts.history import PER_NODE
from barograph_modeler.forecasts.library import KnownParams, Published
from barograph_modeler.forecasts.problems import UnlocatedQuestion
from barograph_modeler.forecasts.sizes import is_number
from barograph_modeler.forecasts.works import FOUND, WORK

MAX_LISTED: Final = 5
"""Parameters or values that a text names, and sets of parameters that an answer offers to choose from."""

FAR_ABOVE: Final = 2.0
"""Ratio of a number that does not matter to the largest that was run, from which it may matter."""
EMPTY: Final = "empty"

Params = Mapping[str, str]


class CompletedParams(NamedTuple):
    """The parameters of a question with those that follow from the runs. conditions: what was filled in. doubts: what
    was never run; one sentence each."""

    params: Params
    conditions: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def completed(known: Published, params: Params) -> CompletedParams:
    """Fill in parameters of a question that all runs which have the given ones share.

    Raises UnlocatedQuestion where these runs differ in a parameter that is left out, and for a part of the size that is
    no number.
    """
    params, layout = _with_layout(known, params)
    if known.problems.get(known.space.locate(params).name) is not None:
        return CompletedParams(params, layout)
    given = known.space.relevant(known.space.with_work(params))
    numbers = known.space.size_names(params)
    for name in numbers & given.keys():
        if not is_number(given[name]):
            raise UnlocatedQuestion(f"{name} is {given[name]!r}, expected a number above 0, as in all runs")
    words = {name: text for name, text in given.items() if name not in numbers}
    alike = [one.values for one in known.params if words.items() <= one.values.items()]
    if not alike:
        return CompletedParams(params, layout, tuple(_doubts(known.params, words)))
    same_size = [one for one in alike if given.items() <= one.items()] or alike
    # A size that is left out altogether is that of the only one, or of a series.
    missing = sorted(
        {name for one in alike for name in one} - given.keys() - (set() if numbers & given.keys() else numbers)
    )
    filled, open_names = {}, []
    for name in missing:
        values = {one.get(name) for one in same_size}
        only = values.pop() if len(values) == 1 else None
        if only is None:
            open_names.append(name)
        else:
            filled[name] = only
    if open_names:
        count = len({frozenset(one.items()) for one in alike})
        raise UnlocatedQuestion(
            f"{count:,} sets of parameters have been run that differ in {_enumerated(open_names)}, expected a value of"
            f" {'each' if len(open_names) > 1 else 'it'}"
        )
    text = f"{', '.join(f'{name} is {value or EMPTY}' for name, value in filled.items())}, as in all such runs."
    return CompletedParams({**params, **filled}, (*layout, text) if filled else layout)


def _with_layout(known: Published, params: Params) -> tuple[Params, tuple[str, ...]]:
    """The question with the ranks per node of the newest runs like it, where they matter and it leaves them out."""
    if PER_NODE not in known.space.size_names(params) or PER_NODE in params:
        return params, ()
    given = known.space.relevant(known.space.with_work(params)).items()
    newest = next((one for one in reversed(known.params) if given <= one.values.items()), known.params[-1])
    number = newest.values[PER_NODE]
    text = f"Each node has {number} ranks, as in the newest of such runs: times differ by that."
    return {**params, PER_NODE: number}, (text,)


def similar_params(known: Published, params: Params) -> list[dict[str, Any]]:
    """Parameters that have been run to choose from, at most MAX_LISTED, the newest last: of those that agree with the
    question in most."""
    given = params.items()
    ordered = sorted(enumerate(known.params), key=lambda item: (len(given & item[1].values.items()), item[0]))
    return [one._asdict() for _, one in ordered[-MAX_LISTED:]]


def _doubts(known: Sequence[KnownParams], words: Params) -> Iterator[str]:
    """Which of the words never occurred, or that they did not together."""
    never = 0
    if WORK in words and all(one.values.get(WORK) != words[WORK] for one in known):
        never += 1
        yield "What it asks for differs from that of all runs in more than numbers."
        words = {name: text for name, text in words.items() if name != WORK and not FOUND.fullmatch(name)}
    for name, text in words.items():
        values = list(dict.fromkeys(one.values[name] for one in reversed(known) if name in one.values))
        if not values:
            never += 1
            yield f"No run with a parameter {name} is known."
        elif text not in values:
            never += 1
            yield f"No run with {name}={text} is known; {name} has been {_some(values)}."
    if not never and words:
        yield "No run with all of these parameters is known."


def unfollowed(known: Published, params: Params) -> Iterator[str]:
    """Which numbers of the question do not matter, and what shows it."""
    for name, values in known.space.unfollowed(known.space.with_work(params)).items():
        ordered = sorted(values, key=float)
        yield f"The runtime does not follow {name}, which was {_some(ordered)} in runs that took the same time."


def beyond(known: Published, params: Params) -> Iterator[str]:
    """Which of them are far above what was run: a size may matter there that start-up has hidden."""
    for name, values in known.space.unfollowed(known.space.with_work(params)).items():
        most = max(values, key=float)
        if is_number(params[name]) and float(params[name]) >= FAR_ABOVE * float(most):
            yield f"{name} was {most} at most: beyond, the runtime may follow it."


def _some(values: Sequence[str]) -> str:
    """MAX_LISTED of the values, and how many others there are."""
    others = len(values) - MAX_LISTED
    more = f" and {others:,} other{'s' * (others > 1)}" if others > 0 else ""
    return ", ".join(values[:MAX_LISTED]) + more


def _enumerated(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
