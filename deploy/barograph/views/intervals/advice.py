"""An answer of the modeler about intervals in sentences, one line per class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barograph.views.advice import known_params
from barograph.views.log import limits
from barograph.views.words import enumerated, listed, percent, period, plural, seconds

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
        yield from known_params(answer)
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
    yield from (f"Assumed: {text[:1].lower()}{period(text[1:])}" for text in answer["conditions"])
