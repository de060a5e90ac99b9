"""Problems that nobody names: works and sizes found in what runs asked for."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import PredictorLibrary, publish
from barograph_modeler.forecasts.sizes import SizeSpace
from barograph_modeler.forecasts.works import WorkIndex, with_work
from barograph_modeler.learning.pending import EndedJob
from barograph_modeler.recognition.recognizer import Assigned
from barograph_modeler.recognition.recorded import recorded_evidence, salt_of
from barograph_modeler.recognition.request import RECORDED, Asked, Request
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.page import PredictPage
from barograph_modeler.serving.question import ASKED_COLUMNS, Question
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.scaling import Campaign
from helpers.works import Site, asked, digest

APP = Application("lab", "app")


def numbered(cells: int, text: str = "cells #", **other: Any) -> dict[str, Any]:
    """A run whose first word names a file with one number."""
    numbers = [{"word": 0, "file": 1, "form": digest(text), "values": str(cells)}]
    return asked(["in.txt"], [(0, text.replace("#", str(cells)))], numbers=json.dumps(numbers), **other)


def known(site: Site) -> Any:
    site.tell()
    site.tell()
    return site.modeler.forecaster.library.published[APP]


def test_runs_of_different_inputs_are_problems_that_no_prediction_mixes():
    site = Site()
    for _ in range(3):
        site.run(asked(["a"], [(0, "one thing")]), intervals=4000)
        site.run(asked(["b"], [(0, "another")]), intervals=8000)
    found = known(site)
    assert len(found.problems) == 2
    said = answer(found, Question("app", 2))
    assert said["refusal"] == "2 works have been run and none was named, expected one"
    params = [one["params"] for one in said["others"]]
    assert all(one.startswith("work=") for one in params)
    spans = [(one["least_seconds"], one["most_seconds"]) for one in said["others"]]
    for text, (least, most) in zip(params, spans, strict=True):
        named = answer(found, Question("app", 2, params={"work": text.removeprefix("work=")}))
        assert least * 0.9 < named["lower_seconds"] < named["upper_seconds"] < most * 1.1


def test_the_number_in_an_input_is_the_size_and_another_one_is_predicted():
    site = Site()
    for cells in (1000, 2000, 4000):
        for ranks in (2, 4):
            site.simulation.ranks, site.simulation.workload = ranks, f"lab/app@{ranks}x1"
            for _ in range(2):
                site.run(numbered(cells), intervals=cells * 4 // ranks)
    found = known(site)
    assert [one["params"] for one in answer(found, Question("app", 2))["others"]] == [
        "input1=1000",
        "input1=2000",
        "input1=4000",
    ]
    said = answer(found, Question("app", 4, params={"input1": "8000"}))
    truth = 8000 * 4 / 4 * 0.0025
    assert said["expected_seconds"] == pytest.approx(truth, rel=0.15)
    assert said["lower_seconds"] < truth < said["upper_seconds"]


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_the_very_first_run_belongs_to_its_work_also_where_its_row_comes_late(late):
    """A fresh service does not wait for the row of the first job, as there may never be any."""
    site = Site()
    first = site.begin(None if late else numbered(1000), intervals=2000)
    if late:
        job = first["jobs"]["job"]
        site.tell(("works", {"job": job} | {key: [value] for key, value in numbered(1000).items()}))
    site.end(first)
    for _ in range(2):
        site.run(numbered(1000), intervals=2000)
    for cells in (2000, 2000, 4000):
        site.run(numbered(cells), intervals=cells * 2)
    found = known(site)
    assert len(found.space.sizes) == 1
    listed = [(one.params, one.runs) for one in found.params]
    assert listed == [("input1=1000", 3), ("input1=2000", 2), ("input1=4000", 1)]


def test_a_number_that_the_runtime_does_not_follow_makes_no_size():
    """A seed, or a port."""
    site = Site()
    for seed in (11, 23, 42, 77):
        site.run(numbered(seed, "seed #"), intervals=4000)
    found = known(site)
    assert [one.names for one in found.space.sizes.values()] == [()]
    said = answer(found, Question("app", 2))
    assert said["refusal"] is None
    assert said["basis"]["runs"] == 4


def place(ranks: int, **params: str) -> WorkloadPlace:
    return WorkloadPlace("w", APP, tuple(sorted(params.items())), ranks, 0)


def test_a_process_grid_is_no_size():
    known = [(place(x * y, word1=str(x), word2=str(y)), 100.0 / (x * y)) for x, y in ((1, 2), (2, 2), (2, 4), (4, 4))]
    assert SizeSpace.of(known).names == ()


def test_a_number_that_grows_with_the_ranks_is_a_size_though_runtimes_stay():
    known = [(place(ranks, word1=str(1000 * ranks)), 100.0) for ranks in (1, 2, 4, 8)]
    assert SizeSpace.of(known).names == ("word1",)
    published = publish(APP, [(one, [seconds]) for one, seconds in known], 0)
    said = answer(published, Question("app", 16))
    assert said["expected_seconds"] == pytest.approx(100, rel=0.1)


def test_a_number_that_never_varied_is_not_in_the_way_unless_another_one_is_asked_for():
    published = publish(APP, [(place(ranks, word1="5"), [100.0 / ranks]) for ranks in (1, 2, 4, 8)], 0)
    assert answer(published, Question("app", 16))["expected_seconds"] == pytest.approx(100 / 16, rel=0.2)
    assert answer(published, Question("app", 16, params={"word1": "5"}))["refusal"] is None
    longer = answer(published, Question("app", 16, params={"word1": "15"}))
    assert longer["lower_seconds"] < 100 / 16 < 300 / 16 < longer["upper_seconds"]
    assert "word1 never varied: the limits are for" in " ".join(longer["conditions"])


def test_a_new_value_of_a_number_that_does_not_matter_is_no_other_problem():
    runs = [(place(ranks, word1=str(seed)), [100.0 / ranks]) for seed, ranks in enumerate((1, 2, 4, 1, 2, 4), 7)]
    said = answer(publish(APP, runs, 0), Question("app", 4, params={"word1": "4711"}))
    assert said["expected_seconds"] == pytest.approx(25, rel=0.05)


def test_works_are_the_same_at_each_scale_and_unlike_each_other():
    index = WorkIndex()
    labels = []
    for words in (["-x", "a"], ["-x", "b"], ["-x", "a"]):
        row = asked(words)
        request = Request.of_row(row)
        assert request is not None
        labels.append(index.label(APP, request.asked(row)))
    assert labels[0] == labels[2] != labels[1]
    assert index.label(APP, None) == "unknown"
    index.join(APP, labels[1], labels[0])
    again = Request.of_row(row := asked(["-x", "b"]))
    assert again is not None
    assert index.label(APP, again.asked(row)) == labels[0]


def test_where_nothing_is_known_of_any_run_there_is_one_work_without_a_label():
    index = WorkIndex()
    assert index.label(APP, None) == index.label(APP, None) == ""
    assert with_work((("n", "1"),), "", None) == (("n", "1"),)


def test_a_job_is_asked_for_by_its_name():
    site = Site()
    jobs = []
    for cells in (1000, 2000):
        for _ in range(3):
            job = site.begin(numbered(cells), intervals=cells * 2)
            site.end(job)
            jobs.append(job["jobs"]["job"][0])
    known(site)
    status, said = ask(site, f"like={jobs[0]}")
    assert (status, said["ranks"], said["params"]) == ("200 OK", 2, {"input1": "1000"})
    assert said["expected_seconds"] == pytest.approx(2000 * 0.0025, rel=0.1)
    assert ask(site, f"like={jobs[-1]}&param.input1=1000")[1]["expected_seconds"] == said["expected_seconds"]
    assert ask(site, "like=lab/none.0.0") == (
        "404 Not Found",
        {"error": "no job 'lab/none.0.0' is known, or it has no ranks"},
    )
    assert ask(site, f"like={jobs[0]}&app=other")[0] == "400 Bad Request"


def ask(site: Site, query: str) -> tuple[str, dict[str, Any]]:
    page, status = PredictPage(site.modeler.forecaster, inline_features()), list[str]()
    body = b"".join(
        page({"REQUEST_METHOD": "GET", "QUERY_STRING": query}, lambda line, _: status.append(line))  # type: ignore[arg-type, misc, return-value]
    )
    return status[0], json.loads(body)


def ask_of_command(site: Site, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """As `barograph predict -- COMMAND`. row: what a run of the command would ask for."""
    row = {f"asked.{name}": str(value) for name, value in row.items() if name in ASKED_COLUMNS and value != ""}
    return ask(site, f"app=app&ranks=2&{urlencode(row)}")


def test_a_command_whose_script_starts_another_program_in_its_place_is_recognised():
    """Ranks are processes of that program, and have no script."""
    site = Site()
    site.run(numbered(1000), intervals=4000)
    known(site)
    _, said = ask_of_command(site, numbered(1000, script=digest("launches it", 16)))
    assert (said["refusal"], said["basis"]["runs"]) == (None, 1)
    site.run(numbered(1000, script=digest("works itself", 16)), intervals=8000)
    known(site)
    _, other = ask_of_command(site, numbered(1000, script=digest("works itself", 16)))
    assert other["expected_seconds"] > 1.5 * said["expected_seconds"]


def test_a_number_that_differs_in_a_run_that_goes_on_is_not_yet_known_to_matter_or_not():
    site = Site()
    for _ in range(2):
        site.run(numbered(1000), intervals=4000)
    known(site)
    site.begin(numbered(4000))
    site.tell()
    _, said = ask_of_command(site, numbered(8000))
    assert "input1 never varied: the limits are for a runtime proportional to it" in " ".join(said["conditions"])


def test_of_work_that_has_not_run_the_numbers_are_no_part_of_its_name():
    site = Site()
    site.run(numbered(1000), intervals=4000)
    known(site)
    _, said = ask_of_command(site, numbered(8000, "points #"))
    assert list(said["params"]) == ["work"]
    assert said["refusal"].startswith(f"lab/app work={said['params']['work']} was never seen")


def test_a_seed_that_runs_of_one_group_have_differed_in_has_varied():
    """Their group has the number of its first run."""
    site = Site()
    for seed in range(101, 111):
        site.run(numbered(seed, "seed #"), intervals=4000)
    assert len(known(site).params) == 1
    status, said = ask_of_command(site, numbered(4711, "seed #"))
    assert (status, said["refusal"]) == ("200 OK", None)
    assert said["conditions"] == ["The machine and the program are as they were."]
    assert said["upper_seconds"] < 1.2 * said["expected_seconds"]


def recorded(name: str, seconds: int) -> Asked:
    """What the record of an imported run has: a job name with a number, and a requested time."""
    form, _, number = name.partition("-")
    folder = {"job name": f"{digest(form)}={digest(number)}", "requested time": digest(str(seconds))}
    row = asked([], threads=-1, executable="") | {"folder": json.dumps(folder)}
    request = Request.of_row(row)
    assert request is not None
    return request.asked(row)


def test_imported_runs_of_one_job_name_are_one_work_whatever_they_requested_and_other_names_are_not():
    works = WorkIndex()
    labels = [works.label(APP, recorded(name, limit)) for name, limit in (("wing-8", 60), ("wing-16", 30))]
    assert labels[0] == labels[1] != ""
    assert works.label(APP, recorded("rotor-8", 60)) not in labels


def test_a_run_that_ended_before_it_was_asked_is_no_work_to_choose_from():
    """Of a run of half a second nothing may be known: of others of the application it is."""
    site = Site()
    ended = asked([], executable="", inputs="", numbers="", reason="process: it has ended")
    site.run(ended, intervals=200)
    for cells in (1000, 2000):
        for ranks in (2, 4):
            site.simulation.ranks, site.simulation.workload = ranks, f"lab/app@{ranks}x1"
            site.run(numbered(cells), intervals=cells * 4 // ranks)
    found = known(site)
    assert len(found.space.sizes) == 2
    said = answer(found, Question("app", 4, params={"input1": "4000"}))
    assert said["refusal"] is None
    assert said["params"]["input1"] == "4000"
    assert said["conditions"][-1] == "Runs of which it is not known what they asked for are left out."
    # Where most scales are of unknown work, it is asked for.
    half = publish(APP, [(place(2, input1="1000", work="a1"), [1.0]), (place(4), [1.0]), (place(8), [1.0])], 0)
    assert "2 works have been run" in answer(half, Question("app", 2))["refusal"]


def test_a_number_that_is_given_too_need_not_be_found():
    """`--param N=8` beside 8000 on the command line."""
    runs = [(place(p, N=str(p), word1=str(1000 * p), word2=str(7 * p % 5 + 1)), [100.0]) for p in (1, 2, 4, 8)]
    published = publish(APP, runs, 0)
    assert SizeSpace.of([(one, seconds[0]) for one, seconds in runs]).names == ("N",)
    assert answer(published, Question("app", 16, params={"N": "16"}))["expected_seconds"] == pytest.approx(100, rel=0.1)


def test_the_first_run_of_a_program_may_take_longer_whatever_its_seed():
    """With 3.6 s and 2.2 s after the seeds 11 and 12 another seed would take next to nothing."""
    cold = [(place(2, word1="11"), 3.56), (place(2, word1="12"), 2.17)]
    assert SizeSpace.of(cold).names == ()
    said = answer(
        publish(APP, [(one, [seconds]) for one, seconds in cold], 0), Question("app", 2, params={"word1": "99"})
    )
    assert 2 < said["expected_seconds"] < 3.6
    # A number by which runs become shorter, such as a tolerance, is found when there are enough; threads at once.
    shorter = [(place(2, word1=str(n)), 100 / n) for n in (1, 2, 3, 4)]
    assert [SizeSpace.of(shorter[:count]).names for count in (2, 4)] == [(), ("word1",)]
    assert SizeSpace.of([(place(2, threads=str(n)), 100 / n) for n in (1, 2)]).names == ("threads",)


def test_a_command_that_asks_for_something_else_is_refused_with_that():
    known = publish(APP, [(place(ranks, word1="5", work="a1"), [100.0 / ranks]) for ranks in (1, 2, 4)], 0)
    refused = answer(known, Question("app", 4, params={"word1": "5", "work": "b2"}))["refusal"]
    assert refused.endswith("expected 3. What it asks for differs from that of all runs in more than numbers")


def test_works_of_one_request_that_only_their_traffic_tells_apart_are_problems_of_their_own():
    forecaster = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0))
    seen = {10.0: "lab/app@2x1", 40.0: "lab/app@2x1+3f2a1c"}
    what = Asked(Request((("program", "abc"), ("word 1", "def"))), (("word2", "7"),))
    for number, seconds in enumerate([10.0, 40.0] * 3):
        job, first = f"lab/{number}.0.0", seen[10.0]
        forecaster.read("jobs", {"job": [job], "workload": [first], "cluster": ["lab"], "app": ["app"], "ranks": [2],
                                 "user": ["u"], "params": ["{}"], "nodes": [1]})  # fmt: skip
        forecaster.assign(Assigned(job, first, what))
        if seconds == 40.0:
            forecaster.assign(Assigned(job, seen[seconds], what, by_traffic=True))
        forecaster.end(EndedJob(job, seen[seconds], seconds, "healthy", 100), 0.0)
    forecaster.step(0.0)
    forecaster.step(0.0)
    (found,) = forecaster.library.published.values()
    assert sorted(set(runs.seconds.tolist()) for runs in found.problems.values()) == [{10.0}, {40.0}]
    upper = [found.predict(found.space.place(place), 2, 1).upper_seconds for place, _ in forecaster.history.scales(APP)]
    assert sorted(upper) == pytest.approx([10.0, 40.0], rel=0.1)


@pytest.mark.parametrize("job_name", ["", "wing"])
def test_imported_and_watched_runs_with_the_same_parameters_are_of_one_problem(job_name):
    """What people give outranks what is recognised: the command of imported runs is unknown."""
    site = Site()
    site.simulation._made = 100
    campaign = Campaign(app="app")
    for ranks in (4, 8, 16):
        for _ in range(2):
            rows = campaign.run(ranks)
            works = recorded_evidence(salt_of(b"", "lab"), "app", {RECORDED[0]: job_name}).columns() if job_name else {}
            found = [("works", {"job": rows["jobs"]["job"]} | {name: [text] for name, text in works.items()})]
            site.tell(("jobs", rows["jobs"]), *(found if works else ()), ("runs", rows["runs"]))
    site.simulation.params = json.dumps({"n": "1"})
    for _ in range(3):
        site.run(asked(["a"], [(0, "one thing")]), intervals=4000)
    found = known(site)
    (runs,) = found.problems.values()
    assert runs.scales.tolist() == [2, 4, 8, 16]
    reply = answer(found, Question("app", 32, params={"n": "1"}))
    assert (reply["refusal"], reply["basis"]["scales"]) == (None, 4)


def test_parameters_that_one_work_has_had_name_it():
    runs = [
        (place(4, n="1", work="aaaaaa"), [3.0]),
        (place(8, n="1", work="aaaaaa"), [2.0]),
        (place(4, work="bbbbbb"), [9.0]),
    ]
    found = publish(APP, runs, 0)
    said = answer(found, Question("app", 4, params={"n": "1"}))
    assert said["expected_seconds"] == pytest.approx(3)
    assert (said["basis"]["runs"], said["basis"]["scales"]) == (1, 2)
    assert answer(found, Question("app", 4))["refusal"] == "2 works have been run and none was named, expected one"


def test_what_is_kept_of_the_works_of_applications_is_bounded_and_the_latest_stay(monkeypatch):
    """A file of the folder changes from run to run, and there are many applications."""
    monkeypatch.setattr("barograph_modeler.forecasts.works.MAX_REQUESTS", 40)
    monkeypatch.setattr("barograph_modeler.forecasts.works.MAX_ALL_REQUESTS", 100)
    index, labels = WorkIndex(), {}
    for number in range(6):
        for word in range(30):
            for run in range(3):
                features = {"program": "a", "word 1": f"{word:x}", "file of the run": f"{run:x}", "file b": "1"}
                one = Asked(Request(tuple(sorted(features.items()))), ())
                labels[number, word] = index.label(Application("lab", str(number)), one)
    assert sum(family.size for family in index._families.values()) <= 100
    assert max(family.size for family in index._families.values()) <= 40
    assert index.label(Application("lab", "5"), one, learn=False) == labels[5, 29]
