"""What a question leaves out is filled in where all runs agree, and asked for where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import publish
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.question import Question

LAB = Application("lab", "solver")


def said(sets: Sequence[Mapping[str, str]], ranks: int = 8, **asked: str) -> dict[str, Any]:
    """The answer after runs of these parameters on 1, 2 and 4 ranks."""
    places = [
        (WorkloadPlace(f"lab/solver@{ranks}x1+{number}", LAB, tuple(sorted(params.items())), ranks, 0), number, ranks)
        for number, params in enumerate(sets, 1)
        for ranks in (1, 2, 4)
    ]
    known = [(place, [100.0 * number / ranks, 101.0 * number / ranks]) for place, number, ranks in places]
    return answer(publish(LAB, known, 0), Question("solver", ranks, params=asked))


MESHES = [{"mesh": "fine", "order": "high"}, {"mesh": "fine", "order": "low"}, {"mesh": "rough", "order": "low"}]


def test_where_runs_differ_in_what_is_left_out_it_is_asked_for_and_not_mixed():
    none = said(MESHES)
    assert none["refusal"] == (
        "3 sets of parameters have been run that differ in mesh and order, expected a value of each"
    )
    assert len(none["others"]) == 3
    some = said(MESHES, mesh="fine")
    assert some["refusal"] == "2 sets of parameters have been run that differ in order, expected a value of it"
    assert [one["params"] for one in some["others"]][-2:] == ["mesh=fine order=high", "mesh=fine order=low"]


def test_what_all_runs_share_is_filled_in_and_named():
    found = said(MESHES, mesh="rough")
    assert found["params"] == {"mesh": "rough", "order": "low"}
    assert "order is low, as in all such runs." in found["conditions"]
    assert found["basis"]["runs"] == 6
    blank = said([{"mesh": "a", "tag": ""}], mesh="a")
    assert "tag is empty, as in all such runs." in blank["conditions"]
    exact = said(MESHES, mesh="rough", order="low")
    assert exact["expected_seconds"] == found["expected_seconds"]
    assert not any("as in all" in text for text in exact["conditions"])


def test_words_that_were_never_run_are_predicted_from_others_and_named():
    one = said(MESHES, mesh="odd", order="low")
    assert one["warnings"][0] == "No run with mesh=odd is known; mesh has been rough, fine."
    assert said(MESHES, mesh="rough", order="high")["warnings"][0] == "No run with all of these parameters is known."
    assert said(MESHES, grid="a")["warnings"][0] == "No run with a parameter grid is known."


SIZES = [{"alg": alg, "n": n, "q": q} for alg in ("a", "b") for n in ("10", "20") for q in ("1", "2")]


@pytest.mark.parametrize("text", ["-5", "0", "many", "nan", "inf", "1e999"])
def test_a_size_that_is_no_number_is_refused(text):
    refusal = said(SIZES, alg="a", n=text, q="1")["refusal"]
    assert refusal == f"n is {text!r}, expected a number above 0, as in all runs"


def test_a_part_of_the_size_that_is_left_out_is_asked_for():
    text = "4 sets of parameters have been run that differ in q, expected a value of it"
    assert said(SIZES, alg="a", n="10")["refusal"] == text
    assert said(SIZES, alg="a", n="15")["refusal"] == text
    assert said([one for one in SIZES if one["alg"] == "a"], n="15", q="2")["params"] == {
        "alg": "a",
        "n": "15",
        "q": "2",
    }


def test_the_sets_to_choose_from_are_those_most_like_the_question():
    sets = [{"alg": alg, "n": str(n)} for alg in ("a", "b") for n in range(1, 9)]
    others = said(sets, alg="a", n="50")["others"]
    assert [one["values"] for one in others] == [{"alg": "a", "n": str(n)} for n in range(4, 9)]


def test_a_question_about_one_size_of_a_series_has_the_series():
    places = [
        (WorkloadPlace(f"lab/solver@{ranks}x1", LAB, (("n", str(100 * ranks)),), ranks, 0), [100.0, 101.0])
        for ranks in (1, 2, 4)
    ]
    known = publish(LAB, places, 0)
    assert answer(known, Question("solver", 8, params={"n": "100"}))["series"] == {"names": ["n"], "largest_ranks": 4}
    assert answer(known, Question("solver", 8))["series"] is None
    assert said(SIZES, alg="a", n="10", q="1")["series"] is None


def test_a_scale_that_was_run_is_no_guess_about_a_curve():
    """Sizes of one number of ranks: the curve over ranks is not asked."""
    places = [
        (WorkloadPlace(f"lab/solver@4x1+{n}", LAB, (("n", str(n)),), 4, 0), [1.0 * n, 1.01 * n])
        for n in (100, 200, 400)
    ]
    known = publish(LAB, places, 0)
    assert not any("guess" in text for text in answer(known, Question("solver", 4, params={"n": "300"}))["warnings"])
    assert any("guess" in text for text in answer(known, Question("solver", 8, params={"n": "300"}))["warnings"])


def test_a_curve_has_the_scales_that_were_run():
    known = publish(LAB, [(WorkloadPlace(f"lab/solver@{p}x1", LAB, (), p, 0), [100.0 / p] * 3) for p in (6, 24, 96)], 0)
    curve = answer(known, Question("solver", 384, curve=True))["curve"]
    assert {6, 24, 96, 384} <= {row[0] for row in curve}


def test_a_speedup_is_over_what_is_predicted_at_the_smallest_scale():
    """Runs there have become slower: the median of all is that of neither."""
    slower = [100.0] * 5 + [130.0] * 4
    known = publish(
        LAB,
        [
            (WorkloadPlace(f"lab/solver@{p}x1", LAB, (), p, 0), some)
            for p, some in ((2, slower), (4, [51.0, 51.5, 50.5]), (8, [26.0, 26.0, 26.5]))
        ],
        0,
    )
    base = answer(known, Question("solver", 2))
    larger = answer(known, Question("solver", 4))
    assert base["expected_seconds"] == pytest.approx(130, rel=0.001)
    assert base["speedup"]["ratio"] == 1.0
    assert larger["speedup"]["base_seconds"] == base["expected_seconds"]
    assert larger["speedup"]["ratio"] == base["expected_seconds"] / larger["expected_seconds"]


def test_of_a_vague_prediction_no_speedup_is_derived():
    places = [(WorkloadPlace(f"lab/solver@{p}x1", LAB, (), p, 0), [seconds]) for p, seconds in ((2, 100.0), (4, 60.0))]
    known = publish(LAB, places, 0)
    assert answer(known, Question("solver", 4))["speedup"] is not None
    far = answer(known, Question("solver", 200))
    assert far["upper_seconds"] > 20 * far["lower_seconds"]
    assert far["speedup"] is None


def test_a_number_that_was_given_and_does_not_matter_is_named_with_what_shows_it():
    """Five runs that differ in their size alone took the same time: it may be a seed."""
    place = WorkloadPlace("w", LAB, (), 4, 0)
    sizes = (400, 800, 1600, 3200, 6400, 12800)
    known = [(place._replace(workload=str(n), params=(("size", str(n)),)), [100.0 + n % 3]) for n in sizes]
    published = publish(LAB, known, 0)
    run = answer(published, Question("solver", 4, params={"size": "400"}))
    values = "400, 800, 1600, 3200, 6400 and 1 other"
    text = f"The runtime does not follow size, which was {values} in runs that took the same time"
    assert (run["conditions"][1:], run["warnings"]) == ([f"{text}."], [])
    never = answer(published, Question("solver", 4, params={"size": "25600"}))
    assert never["conditions"][1:] == [f"{text}."]
    assert never["warnings"] == ["size was 12800 at most: beyond, the runtime may follow it."]
    assert answer(published, Question("solver", 4))["conditions"][1:] == []


def test_a_refusal_names_a_parameter_that_no_run_has_had():
    refused = said(MESHES[:1], mesh="fine", order="high", dt="1")["refusal"]
    assert refused == (
        "lab/solver dt=1 mesh=fine order=high was never seen, and near 8 ranks 1 other problem has run of the"
        " application, expected 3. No run with a parameter dt is known"
    )
