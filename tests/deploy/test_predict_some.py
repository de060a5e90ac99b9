"""Where a page cannot ask which of several sizes is meant, it takes the one that has run most often, and names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.error import URLError

import pytest

from barograph.views import modeler
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


def ask(service: Modeler, **params: str) -> tuple[dict[str, Any] | None, str]:
    return ViewContext(None, service).predict_some(params, app="solver", ranks=8)  # type: ignore[arg-type]


def test_the_one_with_most_runs_is_chosen_and_named():
    service = Modeler(input2="16000", work="a88e1a", mesh="fine")
    answer, error = ask(service, mesh="fine")
    assert answer == {
        "refusal": None,
        "others": [],
        "warnings": [
            "Few runs.",
            "Runs have had several inputs or sizes: this is for input2=16000 work=a88e1a, of which most are.",
        ],
    }
    assert error == ""
    assert len(service.asked) == 2


def test_an_answer_is_not_asked_for_again_and_a_second_refusal_is_the_first():
    service = Modeler()
    assert ask(service)[0] == {"refusal": None, "others": [], "warnings": ["Few runs."]}
    assert len(service.asked) == 1
    answer, _ = ask(Modeler(input2="1"))
    assert answer == {"refusal": "the runs have 2 sizes", "others": OTHERS}


class SlowModeler(Modeler):
    """Refuses at once, and answers too late where a size is named."""

    def predict(self, fields: Mapping[str, Any], credentials: Mapping[str, str]) -> dict[str, Any]:
        if "param.input2" in fields:
            raise modeler.ModelerUnavailable("the modeler does not answer within 10 s")
        return super().predict(fields, credentials)


def test_that_the_modeler_does_not_answer_is_not_a_question_of_the_size():
    assert ask(SlowModeler(input2="1")) == (None, "the modeler does not answer within 10 s")


class SeriesModeler(Modeler):
    """Has a series: sizes of one scale each, which are only predicted along it."""

    def predict(self, fields: Mapping[str, Any], credentials: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append(fields)
        series = {"names": ["n"], "largest_ranks": 64} if "param.n" in fields else None
        return {"refusal": None, "others": [], "warnings": [], "series": series}


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (TimeoutError("timed out"), "timed out; it may be busy, as after an import: ask again"),
        (URLError(TimeoutError("timed out")), "timed out; it may be busy, as after an import: ask again"),
        (URLError(OSError("refused")), "refused; check that `barograph modeler` runs"),
    ],
)
def test_what_to_do_about_a_modeler_that_does_not_answer_depends_on_how(error: Exception, advice: str, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(modeler.DIRECT, "open", fail)
    with pytest.raises(modeler.ModelerUnavailable) as raised:
        modeler.ask("http://modeler", {})
    assert str(raised.value) == f"no answer from the modeler at http://modeler: {advice}"


def test_a_page_shows_the_series_that_a_size_belongs_to_up_to_its_own_most_ranks():
    service = SeriesModeler()
    context = ViewContext(None, service)  # type: ignore[arg-type]
    answer, _ = context.project({"n": "100", "mesh": "fine"}, 4, 2, app="solver")
    assert answer is not None
    assert answer["series"] is None
    assert service.asked[0]["ranks"] == 8
    assert service.asked[1]["ranks"] == 128
    assert "param.n" not in service.asked[1]
    assert service.asked[1]["param.mesh"] == "fine"


def test_a_command_waits_while_an_application_is_learned_and_a_page_does_not(monkeypatch, capsys):
    asked = []

    def learn(url: str, fields: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        asked.append(url)
        if len(asked) < 3:
            raise modeler.Learning("solver is being learned at this moment")
        return {"refusal": None}

    monkeypatch.setattr(modeler, "ask", learn)
    monkeypatch.setattr(modeler, "_AGAIN_SECONDS", 0.0)
    page = modeler.ModelerClient(["http://127.0.0.1:1"], lambda: 0.0)
    text = "solver is being learned at this moment: ask again in a few seconds"
    assert ViewContext(None, page).predict({}) == (None, text)  # type: ignore[arg-type]
    report = modeler.ModelerClient(["http://127.0.0.1:1"], lambda: 0.0, "report")
    assert ViewContext(None, report).predict({}) == ({"refusal": None}, "")  # type: ignore[arg-type]
    assert capsys.readouterr().err == "barograph report: solver is being learned at this moment; waiting\n"
