"""Answers of the modeler about intervals in sentences, with the names of their classes from the log."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from barograph.views.advice import known_params
from barograph.views.log import limits, rows_of
from barograph.views.words import enumerated, listed, percent, period, plural, seconds
from barograph_agent.deliver import keys
from barograph_agent.reduce import intervals
from barograph_agent.settings import places
from barograph_agent.system.listening import is_listening
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused

ANSWER_SECONDS: Final = 2.0

Answer = Mapping[str, Any]
"""The answer of `GET /predict` with `intervals`, from `barograph_modeler.serving.interval_answer`."""


def interval_sentences(answer: Answer, sites: Mapping[int, str]) -> list[str]:
    """The answer, the largest share of the time first. sites: names of classes by id; others are named by their id."""
    return list(_sentences(answer, sites))


def class_ids(answer: Answer) -> list[int]:
    """The ids of the classes."""
    return [int(row["class"], 16) for row in answer["intervals"]]


def _sentences(answer: Answer, sites: Mapping[int, str]) -> Iterator[str]:
    where = plural(answer["ranks"], "rank")
    if answer["refusal"] is not None:
        params = listed(answer["params"])
        name = f"{answer['app']} ({params})" if params else answer["app"]
        yield f"No intervals of {name} on {where} of {answer['cluster']}: {period(answer['refusal'])}"
        yield from known_params(answer, ", for --param")
        return
    for row in answer["intervals"]:
        lower, _, upper = map(seconds, limits(row))
        name = sites.get(int(row["class"], 16), f"class {row['class']}")
        # At a scale that has run the band is the one that the modeler keeps.
        seen = (
            f"seen on {enumerated(f'{ranks:,}' for ranks in row['from_ranks'])}"
            if row["method"] == "trend"
            else "this scale has run"
        )
        yield (
            f"{percent(row['share'])} of the time, {name}: {seconds(row['expected_maximum_seconds'])} expected on"
            f" {where}, {round(100 * answer['level'])} of 100 intervals take {lower} to {upper}; {seen}."
        )
        if row["slowest"] is not None and answer["ranks"] > 1:
            yield f"  {_slowest(row['slowest'])}"
    yield from (f"Assumed: {text[:1].lower()}{period(text[1:])}" for text in answer["conditions"])


def _slowest(slowest: Answer) -> str:
    """Work of the slowest rank, by node and rank."""
    per_node, nodes, found = round(slowest["per_node"]), slowest["nodes"], []
    if per_node > 1:
        found.append(f"the slowest of {per_node:,} ranks on a node works {_times(slowest['of_node'])}")
    if nodes > 1:
        of_all = slowest["of_all"]
        unknown = "how nodes differ is unknown, as all runs had one"
        found.append(unknown if of_all is None else f"the slowest on {nodes:,} nodes works {_times(of_all)}")
    text = "; ".join(found)
    return f"{text[:1].upper()}{text[1:]}."


def _times(ratios: Sequence[float]) -> str:
    lower, middle, upper = ratios
    return f"{middle:.3g} times as long as a mean rank ({lower:.3g} to {upper:.3g})"


def site_names(collectors: str, class_ids: Collection[int]) -> Mapping[int, str]:
    """The innermost frames before and at the end of each class, with the operation.

    A class has an id as well: there is no name where no collector answers with call paths that it is the digest of.
    """
    names: dict[int, str] = {}
    for endpoint in places.endpoints(collectors):
        names |= _names_at(endpoint, [class_id for class_id in class_ids if class_id not in names])
    return names


def _names_at(endpoint: str, class_ids: Iterable[int]) -> Mapping[int, str]:
    ids = ", ".join(map(str, class_ids))
    if not ids or not is_listening(endpoint):
        return {}
    query = f"SELECT DISTINCT class_id, from_site, to_site, operation FROM sites WHERE class_id IN ({ids})"
    try:
        with LogReader(endpoint, ANSWER_SECONDS, keys.from_environment(os.environ)) as reader:
            rows = rows_of(reader.query(query, seconds=ANSWER_SECONDS))
    except (LogUnavailable, ReadRefused, keys.KeyFileError):
        return {}
    return {
        int(row["class_id"]): f"{_innermost(row['from_site'])} to {_innermost(row['to_site'])} ({row['operation']})"
        for row in rows
        if row["class_id"] == intervals.class_id(row["from_site"], row["to_site"])
    }


def _innermost(path: str) -> str:
    return path.partition(" < ")[0]
