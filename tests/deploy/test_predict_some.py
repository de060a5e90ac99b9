"""Where a page cannot ask which of several sizes is meant, it takes the one that has run most often, and names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.views.context import ViewContext

OTHERS = [
    {"params": "input2=8000", "values": {"input2": "8000"}, "runs": 2},
    {"params": "input2=16000 work=a88e1a", "values": {"input2": "16000", "work": "a88e1a"}, "runs": 5},
]


class Modeler:
    """Answers questions with `params` only."""

    def __init__(self, **params: str) -> None:
        self.params = {f"param.{name}": value for name, value in params.items()}
        self.asked: list[Mapping[str, Any]] = []

    def predict(self, fields: Mapping[str, Any], credentials: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append(fields)
        if self.params.items() <= fields.items():
            return {"refusal": None, "others": [], "warnings": ["Few runs."]}
        return {"refusal": "the runs have 2 sizes", "others": OTHERS}


def ask(modeler: Modeler, **params: str) -> tuple[dict[str, Any] | None, str]:
    return ViewContext(None, modeler).predict_some(params, app="solver", ranks=8)  # type: ignore[arg-type]


def test_the_one_with_most_runs_is_chosen_and_named():
    modeler = Modeler(input2="16000", work="a88e1a", mesh="fine")
    answer, error = ask(modeler, mesh="fine")
    assert answer == {
        "refusal": None,
        "others": [],
        "warnings": ["Few runs.", "Several have been run: this is input2=16000 work=a88e1a; none has more runs."],
    }
    assert error == ""
    assert len(modeler.asked) == 2


def test_an_answer_is_not_asked_for_again_and_a_second_refusal_is_the_first():
    modeler = Modeler()
    assert ask(modeler)[0] == {"refusal": None, "others": [], "warnings": ["Few runs."]}
    assert len(modeler.asked) == 1
    answer, _ = ask(Modeler(input2="1"))
    assert answer == {"refusal": "the runs have 2 sizes", "others": OTHERS}


class SeriesModeler(Modeler):
    """Has a series: sizes of one scale each, which are only predicted along it."""

    def predict(self, fields: Mapping[str, Any], credentials: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append(fields)
        series = {"names": ["n"], "largest_ranks": 64} if "param.n" in fields else None
        return {"refusal": None, "others": [], "warnings": [], "series": series}


def test_a_page_shows_the_series_that_a_size_belongs_to_up_to_its_own_most_ranks():
    modeler = SeriesModeler()
    context = ViewContext(None, modeler)  # type: ignore[arg-type]
    answer, _ = context.project({"n": "100", "mesh": "fine"}, 4, 2, app="solver")
    assert answer is not None
    assert answer["series"] is None
    assert modeler.asked[0]["ranks"] == 8
    assert modeler.asked[1]["ranks"] == 128
    assert "param.n" not in modeler.asked[1]
    assert modeler.asked[1]["param.mesh"] == "fine"
