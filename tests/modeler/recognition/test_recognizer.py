"""Recognition of work: which runs are like which, from what was asked for and what they did."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from barograph_agent.protocol import wire
from barograph_collector.storage import messages
from barograph_modeler.recognition import recognizer
from barograph_modeler.recognition.family import (
    FEATURES,
    GROUPS,
    OUTWEIGHED,
    REQUESTS,
    TRAFFIC,
    Family,
    Relevance,
    RunTime,
    UnknownWork,
)
from barograph_modeler.recognition.recognizer import WAIT_SECONDS
from barograph_modeler.recognition.request import WORDS, Request, family_of
from barograph_modeler.recognition.signature import ClassTotals, Signature
from helpers.jobs import verdict
from helpers.works import Site, asked, digest, new_modeler

FAMILY = "lab/app@2x1"


def test_runs_of_the_same_request_are_one_group_and_others_are_not_compared_with_it():
    site = Site()
    small, large = asked(["1500", "4000"]), asked(["2400", "1500"])
    assert site.run(small) == (FAMILY, "first")
    assert site.run(small) == (FAMILY, "same")
    group, how = site.run(large, factor=3.0)
    assert (family_of(group), how) == (FAMILY, "first")
    assert group != FAMILY
    assert site.run(large, factor=3.0) == (group, "same")
    assert site.run(small) == (FAMILY, "same")
    learned = site.modeler.learner.workloads
    assert {name: len(one.runtimes) for name, one in learned.items()} == {FAMILY: 3, group: 2}
    assert "differs from lab/app@2x1 in word 1, word 2" in site.written[2]["reason"]


def test_a_word_that_changes_in_every_run_is_learned_not_to_matter_and_one_that_matters_is_not():
    site, hows = Site(), []
    for seed in range(5):
        hows.append(site.run(asked(["1500", f"--seed={seed}"]))[1])
    assert hows == ["first", "first", "first", "like", "like"]
    group, how = site.run(asked(["2400", "--seed=9"]), factor=2.0)
    assert (group != FAMILY, how) == (True, "first")
    assert site.run(asked(["2400", "--seed=10"]), factor=2.0) == (group, "like")
    assert site.run(asked(["1500", "--seed=11"])) == (FAMILY, "like")
    assert len(site.modeler.learner.workloads) == 2
    assert len(site.modeler.learner.workloads[FAMILY].runtimes) == 6


def test_groups_that_do_the_same_are_merged_with_a_reason_and_their_history_is_one():
    site = Site()
    site.run(asked(["in.lj", "out.1"]))
    job = site.begin(asked(["in.lj", "out.2"]))
    before = site.assignments[job["jobs"]["job"][0]]
    site.end(job)
    after = site.assignments[job["jobs"]["job"][0]]
    assert (before["how"], after["how"], after["workload"]) == ("first", "merged", FAMILY)
    assert after["reason"] == f"does the same at the same pace as {FAMILY}, though it differs in word 2"
    workload = site.modeler.learner.workloads[FAMILY]
    assert (len(workload.runtimes), workload.pace.runs) == (2, 2)
    assert site.run(asked(["in.lj", "out.2"])) == (FAMILY, "same")


@pytest.mark.parametrize(
    ("factor", "intervals"), [(1.2, 8000), (1.0, 12000), (0.8, 8000)], ids=["slower", "longer", "faster"]
)
def test_work_that_differs_in_pace_or_length_is_not_merged(factor, intervals):
    site = Site()
    site.run(asked(["4000"]))
    group, _ = site.run(asked(["9000"]), factor, intervals)
    assert site.run(asked(["9000"]), factor, intervals) == (group, "same")
    assert group != FAMILY


@pytest.mark.parametrize(
    ("factor", "intervals", "merged"), [(1.08, 8000, True), (1.08, 8100, False), (1.03, 8100, True)]
)
def test_runs_with_exactly_the_same_intervals_may_differ_more_in_pace(factor, intervals, merged):
    site = Site()
    site.run(asked(["out.1"]))
    job = site.begin(asked(["out.2"]), factor, intervals)
    site.end(job)
    assert (site.assignments[job["jobs"]["job"][0]]["how"] == "merged") == merged


def test_an_input_is_known_by_its_content_and_not_by_its_name():
    site = Site()
    assert site.run(asked(["-in", "in.lj"], [(1, "10 steps")])) == (FAMILY, "first")
    assert site.run(asked(["-in", "other.lj"], [(1, "10 steps")])) == (FAMILY, "same")
    group, how = site.run(asked(["-in", "in.lj"], [(1, "90 steps")]), factor=4.0)
    assert (group != FAMILY, how) == (True, "first")
    assert site.run(asked(["-in", "in.lj"], [(-1, "90 steps")]), factor=4.0)[1] == "first"


def test_a_new_build_is_the_same_work():
    site = Site()
    site.run(asked(["1500"]))
    assert site.run(asked(["1500"], executable="0123456789abcdef")) == (FAMILY, "same")


def test_another_program_of_the_same_name_of_application_is_never_merged():
    site = Site()
    site.run(asked(["1500"], program="heat"))
    group, _ = site.run(asked(["1500"], program="wave"))
    assert site.run(asked(["1500"], program="wave")) == (group, "same")


def test_a_run_that_was_slow_is_doubted_to_be_like_those_it_had_joined():
    site = Site()
    for seed in range(4):
        site.run(asked(["1500", f"{seed}"]))
    assert site.run(asked(["1500", "huge"]), factor=9.0, score=5.0) == (FAMILY, "like")
    # Its word may have mattered: the next one is compared with nothing, and learned.
    group, how = site.run(asked(["1500", "huge"]), factor=9.0)
    assert (group != FAMILY, how) == (True, "first")


def test_after_a_slow_run_the_next_ones_with_other_values_are_compared():
    site = Site()

    def run(number: int, factor: float = 1.0, score: float = 0.0) -> str:
        return site.run(asked(["1500"], folder={"INCAR": "a", "log": str(number)}), factor, score=score)[1]

    assert [run(number) for number in range(4)] == ["first", "first", "first", "like"]
    assert run(4, factor=1.6, score=5.0) == "like"
    assert [run(number) for number in (5, 6)] == ["like", "like"]
    # A second one leaves three of five agreements; a third and a fourth do not.
    assert [run(number, factor=1.6, score=5.0) for number in (7, 8, 9)] == ["like", "like", "first"]
    # The first was learned at its pace, and was alone at it: that does not make the file matter for ever.
    assert [run(number) for number in range(10, 16)][-2:] == ["like", "like"]


def test_values_of_a_slow_run_are_forgotten_when_somebody_who_knows_says_that_they_do_not_matter():
    relevance, request = Relevance(), Request((("word 1", "huge"),))
    relevance.agree({"word 1"})
    relevance.agree({"word 1"})
    relevance.doubt({"word 1"}, request)
    assert not relevance.matters({"word 1"})
    assert relevance.are_doubted({"word 1"}, request)
    relevance.decree({"word 1"}, matter=False)
    assert not relevance.are_doubted({"word 1"}, request)


def test_without_evidence_jobs_are_compared_as_they_are_named():
    site = Site()
    assert [site.run(None) for _ in range(2)] == [(FAMILY, "none")] * 2
    assert site.run(asked(["1500"]))[1] == "first"


def test_the_first_row_of_a_job_counts():
    """A second one is of a later program of the same run, whose rank 0 is on another node."""
    site = Site()
    first, later = asked(["100"]), asked(["200"])
    site.run(first)
    job = site.begin(first)
    name = job["jobs"]["job"][0]
    works = {"job": [name]} | {column: [value] for column, value in later.items()}
    site.tell(("jobs", job["jobs"] | {"workload": ["lab/other@9x3"]}), ("works", works))
    site.end(job)
    assert [row["workload"] for row in site.written if row["job"] == name] == [FAMILY]
    assert site.run(later)[1] == "first"


def test_a_job_whose_words_are_unknown_is_not_compared_with_those_whose_words_are_known():
    site = Site()
    site.run(asked(["1500"]))
    gone = asked([], executable="", reason="process: it has ended")
    assert site.run(gone) == (f"{FAMILY}+unknown", "none")
    assert site.written[-1]["reason"].endswith(": process: it has ended")
    assert site.run(asked(["1500"])) == (FAMILY, "same")


def test_a_row_that_makes_no_sense_is_a_reason_and_no_failure():
    site = Site()
    site.run(asked(["1500"]))
    assert site.run(asked([]) | {"words": '{"a": 1}'})[1] == "none"
    assert "Expected `array`, got `object`" in site.written[-1]["reason"]


def test_the_very_first_job_has_its_group_when_its_row_comes_late():
    site = Site()
    job = site.begin(None)
    name = job["jobs"]["job"]
    site.tell(("works", {"job": name} | {key: [value] for key, value in asked(["1500"]).items()}))
    assert [row["how"] for row in site.written] == ["none", "first"]
    site.end(job)
    assert site.run(asked(["1500"])) == (FAMILY, "same")


def test_a_job_waits_for_its_row_where_there_are_such_rows_and_not_for_ever():
    site = Site()
    site.run(asked(["1500"]))
    job = site.begin(None)
    name = job["jobs"]["job"][0]
    assert name not in site.assignments
    assert not site.modeler.idle
    site.tell(seconds=WAIT_SECONDS + 1)
    assert site.assignments[name]["how"] == "none"


@pytest.mark.parametrize("is_read_again", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("user", ["u", "another"])
def test_a_job_whose_row_came_too_late_takes_no_request_from_its_group(is_read_again, user):
    site = Site()
    assert site.run(asked(["2400"])) == (FAMILY, "first")
    site.user = user
    group, _ = site.run(asked(["1500"]), factor=3.0)
    late = site.begin(None)
    name = late["jobs"]["job"]
    site.tell(seconds=WAIT_SECONDS + 1)
    unknown = site.assignments[name[0]]
    assert (unknown["how"], unknown["workload"] in (FAMILY, group)) == ("none", False)
    assert unknown["workload"] == f"{FAMILY}+unknown" or user == "another"
    row = {key: [value] for key, value in asked(["1500"]).items()}
    site.tell(("works", {"job": name} | row))
    if is_read_again:
        written = {key: [one[key] for one in site.written] for key in site.written[0]}
        site = Site()
        site.simulation.now, site.simulation._made, site.user = 2e6, 9, user
        site.modeler.recognizer.read("assignments", written, 0.0)
        for job, words in zip(written["job"], ("2400", "1500", "1500"), strict=True):
            one = {key: [value] for key, value in asked([words]).items()}
            owner = {"user": ["u" if words == "2400" else user]}
            site.tell(("jobs", late["jobs"] | owner | {"job": [job]}), ("works", {"job": [job]} | one))
        assert site.written == []
    assert site.run(asked(["1500"]), factor=3.0) == (group, "same")


def test_reading_the_log_again_gives_the_same_groups_and_writes_nothing():
    site = Site()
    told: list = []
    real = site.tell
    site.tell = lambda *rows, seconds=0.0: (told.extend(rows), real(*rows, seconds=seconds))[1]  # type: ignore[method-assign]
    for seed in range(4):
        site.run(asked(["1500", str(seed)]))
        site.run(asked(["2400", str(seed)]), factor=3.0)
    again = Site(new_modeler())
    again.simulation = site.simulation
    rows = {name: [row[name] for row in site.written] for name in site.written[0]}
    again.modeler.recognizer.read("assignments", rows, 0.0)
    for table in ("jobs", "works", "blocks", "runs", "scores"):
        again.tell(*(one for one in told if one[0] == table))
    assert again.written == []
    count = {name: len(one.runtimes) for name, one in site.modeler.learner.workloads.items()}
    assert {name: len(one.runtimes) for name, one in again.modeler.learner.workloads.items()} == count
    assert again.run(asked(["1500", "new"])) == (FAMILY, "like")


def test_a_snapshot_has_all_that_is_known():
    site = Site()
    for seed in range(4):
        site.run(asked(["1500", str(seed)]))
    running = site.begin(asked(["1500", "5"]))
    other = Site(new_modeler())
    other.modeler.restore(site.modeler.state())
    other.simulation = site.simulation
    other.end(running)
    assert other.run(asked(["1500", "6"])) == (FAMILY, "like")


def test_a_family_and_its_groups_are_bounded_and_the_oldest_are_forgotten():
    family = Family(FAMILY, Relevance())
    random.seed(1)
    for number in range(3 * GROUPS):
        request = request_of(str(number))
        family.add(f"job {number}", family.decide(request).group, request)
    assert len(family.groups) == GROUPS
    assert family.decide(request_of("0")).how == "first"
    assert family.decide(request_of(str(3 * GROUPS - 1))).how == "same"
    one = Family(FAMILY, Relevance())
    for number in range(3 * REQUESTS):
        one.add(f"job {number}", FAMILY, request_of(str(number)))
    assert len(one.groups[FAMILY].requests) == REQUESTS
    assert len(one._requests) <= 2 * REQUESTS


@pytest.mark.parametrize("words", [1, 40])
def test_of_all_families_together_so_many_bytes_are_kept_and_the_family_without_jobs_for_longest_goes(
    monkeypatch, words
):
    most = 20 * recognizer.memory([request_of(*map(str, range(words)))])
    monkeypatch.setattr(recognizer, "MAX_BYTES", most)
    site = Site()
    for family in range(4):
        site.simulation.workload = f"lab/app{family}@2x1"
        for number in range(8):
            site.begin(asked([str(number), *map(str, range(1, words))]), intervals=2)
        groups = [group for one in site.modeler.recognizer._families.values() for group in one.groups.values()]
        assert sum(recognizer.memory(group.requests) for group in groups) <= most
    assert list(site.modeler.recognizer._families) == ["lab/app2@2x1", "lab/app3@2x1"]


def test_of_a_command_line_of_a_thousand_words_the_first_are_told_apart():
    words = [str(number) for number in range(1000)]
    one, other, last = request_of(*words), request_of("x", *words[1:]), request_of(*words[:-1], "x")
    assert len(one.features) == WORDS + 3
    assert one.differences(other) == {"word 1"}
    assert one.differences(last) == {"further words"}


def request_of(*words: str) -> Request:
    found = Request.of_row(asked(list(words)))
    assert found is not None
    return found


@pytest.mark.parametrize(("proven", "agreements"), [(True, 100), (False, OUTWEIGHED)])
def test_a_feature_that_has_mattered_once_matters_for_ever_unless_by_time_alone_and_outweighed(proven, agreements):
    relevance = Relevance()
    relevance.agree({"word 1", "word 2"})
    relevance.agree({"word 2"})
    assert relevance.matters({"word 1", "word 2"}) == {"word 1"}
    relevance.disagree({"word 1", "word 2"}, proven=proven)
    for _ in range(agreements - 1):
        relevance.agree({"word 1"})
    assert relevance.matters({"word 1"}) == {"word 1"}
    relevance.agree({"word 1"})
    assert relevance.matters({"word 1"}) == ({"word 1"} if proven else set())
    relevance.disagree({"word 2"}, proven=True)
    assert relevance.matters({"word 2"}) == {"word 2"}


def test_where_runs_of_one_request_do_different_work_that_is_no_reason_for_a_feature_to_matter():
    relevance = Relevance()
    for _ in range(5):
        relevance.agree({"word 2"})
    relevance.disagree({"word 2"}, proven=True)
    assert not relevance.matters({"word 2"})
    relevance.disagree({TRAFFIC}, proven=True)
    relevance.disagree({"word 1"}, proven=True)
    relevance.agree({"word 1"})
    relevance.agree({"word 1"})
    assert not relevance.matters({"word 1"})


@pytest.mark.parametrize(
    ("group", "family"),
    [
        ("lab/a+b@2x1", "lab/a+b@2x1"),
        ("lab/a+b@2x1+0a1b2c", "lab/a+b@2x1"),
        ("lab/a@2x1:0a1b2c3d+unknown", "lab/a@2x1:0a1b2c3d"),
    ],
)
def test_the_family_of_a_group_is_in_its_name(group, family):
    assert family_of(group) == family


def test_rows_are_such_as_the_log_accepts_however_long_a_name_is():
    site = Site()
    site.simulation.workload = "lab/" + "a" * 120 + "@2x1"
    names = {site.run(asked([str(number)]), factor=1 + number)[0] for number in range(3)}
    assert len(names) == 3
    for row in site.written:
        message = wire.append("modeler/1", 1, "assignments", 1, row)
        assert messages.appended(message, b"", 0.0).refusal is None


def test_a_file_that_no_word_names_tells_works_apart_and_what_runs_leave_there_does_not():
    site = Site()
    assert site.run(asked([], folder={"INCAR": "a"})) == (FAMILY, "first")
    assert site.run(asked([], folder={"INCAR": "a", "OUT": "1"})) == (FAMILY, "same")
    other, how = site.run(asked([], folder={"INCAR": "b", "OUT": "2"}), factor=3.0)
    assert (other != FAMILY, how) == (True, "first")
    hows = [site.run(asked([], folder={"INCAR": "b", "OUT": str(n)}), factor=3.0)[1] for n in range(3, 8)]
    assert hows == ["first", "first", "like", "like", "like"]
    assert site.run(asked([], folder={"INCAR": "a", "OUT": "9"})) == (FAMILY, "like")
    assert set(site.modeler.learner.workloads) == {FAMILY, other}


def test_a_folder_of_which_little_is_known_does_not_make_the_rest_unknown():
    request = Request.of_row(asked([], reason="working folder: more than 512 names in one"))
    assert request is not None
    assert not request.differences(Request.of_row(asked([], folder={"a": "1"})) or request)


def test_folders_without_a_common_file_are_other_work():
    one, two = (Request.of_row(asked([], folder=folder)) for folder in ({"a": "1", "b": "1"}, {"c": "1"}))
    assert one is not None
    assert two is not None
    assert one.differences(two) == {"working folder"}
    three = Request.of_row(asked([], folder={"b": "1", "c": "1"}))
    assert three is not None
    assert not one.differences(three)
    assert not two.differences(three)


def test_features_that_have_agreed_are_bounded():
    relevance = Relevance()
    relevance.agree(f"file {number}" for number in range(2 * FEATURES))
    assert len(relevance.agreed) == FEATURES


def traffic(job: dict, elapsed: float, size: float = 1000.0, known: int = 500, messages: int = 4, look=0) -> tuple:
    """Rows of `signatures` of a job: so many messages of so many bytes per interval of the first of two classes."""
    values = {
        "class_id": [11, 12], "intervals": [known, known], "bytes": [8 * known, 0],
        "messages": [messages * known, 0], "message_bytes": [int(size * messages * known), 0],
    }  # fmt: skip
    return "signatures", {
        "job": job["jobs"]["job"] * 2, "elapsed_seconds": [elapsed] * 2, "time": [0.0] * 2, "look": [look] * 2, **values
    }  # fmt: skip


def ran(site: Site, row: dict, elapsed: float = 3.1, factor: float = 1.0, intervals: int = 8000, **sent) -> dict:
    """A whole job that communicates; its last row of `assignments` while it ran."""
    job = site.begin(row, factor, intervals)
    site.tell(traffic(job, elapsed, **sent))
    found = site.assignments[job["jobs"]["job"][0]]
    site.end(job)
    return found


def test_runs_of_one_request_that_communicate_differently_are_different_work():
    site, row = Site(), asked(["deck"])
    assert [ran(site, row)["how"] for _ in range(2)] == ["first", "same"]
    other = ran(site, row, size=2310.0, factor=3.0)
    assert (other["how"], other["workload"] != FAMILY) == ("first", True)
    assert other["reason"] == (
        f"first run of this work; asks for the same as earlier runs of {FAMILY}, but has 2.3 times the bytes of"
        " messages per interval"
    )
    # Each is found again, whichever was the latest.
    assert ran(site, row)["workload"] == FAMILY
    # One longer run may have been disturbed. The second proves that there is such work.
    assert ran(site, row, size=2290.0, factor=3.0)["how"] == "first"
    again = ran(site, row, size=2300.0, factor=3.0)
    assert (again["workload"], again["how"]) == (other["workload"], "same")
    assert again["reason"] == f"asks for the same as earlier runs of {other['workload']}"
    learned = site.modeler.learner.workloads
    assert {name: len(one.runtimes) for name, one in learned.items()} == {FAMILY: 3, other["workload"]: 3}


def test_no_run_is_compared_with_a_single_one_that_was_longer_and_communicated_otherwise():
    site, row = Site(), asked(["deck"])
    for _ in range(3):
        ran(site, row)
    disturbed = [ran(site, row, size=size, factor=1.3) for size in (700.0, 400.0)]
    assert [one["how"] for one in disturbed] == ["first", "first"]
    # Neither the next run, before it communicates, nor one that communicates alike belongs to one of these.
    assert site.run(row)[0] == FAMILY
    alike = ran(site, row, size=700.0, factor=1.0)
    assert alike["workload"] not in (FAMILY, *(one["workload"] for one in disturbed))
    assert ran(site, row)["workload"] == FAMILY


@pytest.mark.parametrize("slower", [1.0, 4.0])
def test_a_slow_run_of_a_program_that_sends_less_later_remains_in_its_group(slower):
    """It sends a third as much after 192 intervals, which a slow run has not had at the age of the others."""
    site, row = Site(), asked(["deck"])

    def run(slower: float) -> dict:
        job = site.begin(row, factor=slower)
        for seconds, look, size in ((3.1, 24, 3000.0), (10.5, 192, 3000.0), (12.0, 1536, 1300.0)):
            site.tell(traffic(job, seconds * slower, size=size, known=look // 2, look=look))
        found = site.assignments[job["jobs"]["job"][0]]
        site.end(job)
        return found

    assert [run(1.0)["how"] for _ in range(3)] == ["first", "same", "same"]
    assert run(slower)["workload"] == FAMILY


@pytest.mark.parametrize("sizes", [(1000.0, 1000.0, 1000.0), (3000.0, 3000.0, 3000.0)], ids=["remains", "moves"])
def test_a_run_has_a_row_for_each_group_that_it_was_in_and_another_when_it_ends(sizes):
    site, row = Site(), asked(["deck"])
    ran(site, row)
    job = site.begin(row)
    name = job["jobs"]["job"][0]
    for elapsed, known, size in zip((3.1, 10.2, 30.4), (20, 40, 80), sizes, strict=True):
        site.tell(traffic(job, elapsed, known=known, size=size))
    running = [one["workload"] for one in site.written if one["job"] == name]
    assert len(running) == len(set(running)) == 1 + (sizes[0] != 1000.0)
    site.tell(("blocks", job["blocks"]), ("runs", job["runs"]))
    assert [one["workload"] for one in site.written if one["job"] == name] == [*running, running[-1]]


@pytest.mark.parametrize(
    ("sent", "elapsed"),
    [({"size": 1080.0}, 3.1), ({"known": 200}, 3.1), ({"size": 5000.0, "known": 4}, 3.1),
     ({"size": 2000.0}, 90.0)],
    ids=["particles wander", "slower", "too little is known", "known too late"],
)  # fmt: skip
def test_what_says_nothing_about_the_work_moves_no_run(sent, elapsed):
    site, row = Site(), asked(["deck"])
    ran(site, row)
    ran(site, row, elapsed=90.0)
    assert ran(site, row, elapsed=elapsed, **sent)["workload"] == FAMILY


def test_a_run_of_long_intervals_is_moved_when_it_has_had_enough_of_them():
    site, row = Site(), asked(["deck"])
    ran(site, row, elapsed=900.0, known=20)
    job = site.begin(row, 2.0)
    name = job["jobs"]["job"][0]
    for elapsed, known in ((30.1, 1), (400.0, 20)):
        site.tell(traffic(job, elapsed, size=3000.0, known=known))
    assert (site.assignments[name]["how"], site.assignments[name]["workload"] != FAMILY) == ("first", True)


def test_the_tolerance_is_learned_from_the_runs_of_a_group():
    exact, wander = Site(), Site()
    row = asked(["deck"])
    for number in range(20):
        ran(exact, row)
        ran(wander, row, size=1000.0 * (1.0 + 0.04 * (-1) ** number))
    assert ran(exact, row, size=1060.0, factor=2.0)["how"] == "first"
    assert ran(wander, row, size=1060.0)["workload"] == FAMILY
    assert list(wander.modeler.learner.workloads) == [FAMILY]


def two_works(site: Site, row: dict, size: float) -> str:
    """Three runs of each of two works of one request, of 1000 bytes and of so many; the group of the latter."""
    found = ""
    for _ in range(3):
        ran(site, row)
        found = ran(site, row, size=size, factor=3.0)["workload"]
    assert found != FAMILY
    return found


def test_where_traffic_matters_a_run_of_which_it_cannot_be_told_is_judged_by_itself_until_it_can():
    site, row = Site(), asked(["deck"])
    other = two_works(site, row, 3000.0)
    job = site.begin(row, 1.0)
    name = job["jobs"]["job"][0]
    site.tell(traffic(job, 3.1, size=1000.0, known=2))
    alone = site.assignments[name]
    assert (alone["how"], alone["workload"] in (FAMILY, other)) == ("first", False)
    assert alone["reason"].startswith(f"judged by itself; asks for the same as earlier runs of {other} and {FAMILY}")
    # The next run is compared with the works that are known.
    assert site.assignments[site.begin(row)["jobs"]["job"][0]]["workload"] == other
    site.tell(traffic(job, 3.2, size=1000.0, known=40))
    assert site.assignments[name]["workload"] == FAMILY
    assert alone["workload"] not in next(iter(site.modeler.recognizer._families.values())).groups


def disturbed(site: Site, row: dict, intervals: int, factor: float) -> str:
    """A run that alarms, with the traffic of the others; its group in the end."""
    job = site.begin(row, factor, intervals)
    site.tell(traffic(job, 3.1))
    site.end(job, score=5.0)
    return str(site.assignments[job["jobs"]["job"][0]]["workload"])


def test_a_run_that_alarms_with_another_number_of_intervals_is_other_work_where_such_is_known():
    site, row = Site(), asked(["deck"])
    two_works(site, row, 3000.0)
    job = site.begin(row, 0.4, 2000)
    name = job["jobs"]["job"][0]
    site.tell(traffic(job, 3.1), ("blocks", job["blocks"]), ("scores", verdict(job, 5.0) | {"final": [0]}))
    before = site.assignments[name]["workload"]
    site.tell(("runs", job["runs"]))
    after = site.assignments[name]
    assert (before, after["how"], after["workload"] != FAMILY) == (FAMILY, "first", True)
    assert after["reason"].endswith(f"earlier runs of {FAMILY}, but has another number of intervals")


def test_where_no_other_work_is_known_two_runs_that_alarm_with_as_many_intervals_prove_it():
    site, row = Site(), asked(["deck"])
    for _ in range(3):
        ran(site, row)
    first = disturbed(site, row, 2000, 0.4)
    assert first != FAMILY
    # One slow run of a program that works for a certain time is no other work.
    assert ran(site, row)["workload"] == FAMILY
    assert disturbed(site, row, 5000, 0.7) not in (first, FAMILY)
    assert ran(site, row)["workload"] == FAMILY
    assert disturbed(site, row, 2010, 0.4) == first
    # A run that may be either is judged by itself, and one with the runs that were as long in the end.
    job = site.begin(row)
    name = job["jobs"]["job"][0]
    site.tell(traffic(job, 3.1))
    assert site.assignments[name]["reason"].startswith("judged by itself")
    site.end(job)
    assert (site.assignments[name]["how"], site.assignments[name]["workload"]) == ("merged", FAMILY)


def test_slow_runs_of_a_program_that_stops_by_the_clock_are_no_other_work():
    site, row = Site(), asked(["deck"])
    ran(site, row)
    groups = [disturbed(site, row, 4000, 2.0) for _ in range(3)]
    assert groups == [FAMILY] * 3
    job = site.begin(row)
    site.tell(traffic(job, 3.1))
    assert site.assignments[job["jobs"]["job"][0]]["workload"] == FAMILY


def test_traffic_that_differs_by_chance_is_learned_not_to_matter():
    site, row = Site(), asked(["deck"])
    hows = [ran(site, row, size=size)["how"] for size in (1000.0, 1500.0, 600.0, 2500.0, 900.0)]
    assert hows == ["first", "first", "first", "same", "same"]
    assert list(site.modeler.learner.workloads) == [FAMILY]


def test_work_that_takes_as_long_but_communicates_differently_is_not_merged():
    site = Site()
    ran(site, asked(["small"]))
    group = ran(site, asked(["large"]), size=2000.0)["workload"]
    assert ran(site, asked(["large"]), size=2000.0)["workload"] == group != FAMILY


def test_a_log_that_is_read_again_gives_the_same_groups():
    site, row = Site(), asked(["deck"])
    jobs, told = [], []
    for size in (1000.0, 1000.0, 2000.0, 1000.0, 2000.0):
        factor = 2.0 if size > 1000 else 1.0
        job = site.begin(row, factor)
        work = ("works", {"job": job["jobs"]["job"]} | {name: [value] for name, value in row.items()})
        sent = traffic(job, 3.1, size)
        site.tell(sent)
        site.end(job)
        jobs.append(job["jobs"]["job"][0])
        told += [("jobs", job["jobs"]), work, sent]
        told += [("blocks", job["blocks"]), ("runs", job["runs"]), ("scores", verdict(job, 0.0))]
    before = {job: site.assignments[job]["workload"] for job in jobs}
    again = Site()
    written = {key: [one[key] for one in site.written] for key in site.written[0]}
    again.modeler.recognizer.read("assignments", written, 0.0)
    for one in told:
        again.tell(one)
    assert again.written == []
    learned = again.modeler.learner.workloads
    assert {name: len(one.runtimes) for name, one in learned.items()} == {FAMILY: 3, before[jobs[2]]: 2}


def of_users(site, *users, row=None, factor=1.0):
    """The groups of a run by each of these users."""
    found = []
    for site.user in users:
        found.append(site.run(row or asked(["1500"]), factor)[0])
    return found


def test_no_user_teaches_the_history_of_another():
    site = Site()
    mine, *theirs = of_users(site, "amara", "mallory", "mallory", "mallory")
    assert mine == FAMILY
    assert len(set(theirs)) == 1
    assert theirs[0] != mine
    assert family_of(theirs[0]) == FAMILY
    assert of_users(site, "amara") == [mine]
    assert len(site.modeler.learner.workloads[mine].runtimes) == 2


def test_what_does_not_matter_to_a_user_still_matters_to_another():
    site = Site()
    for number in range(4):
        of_users(site, "mallory", row=asked([f"{number}"]))
    site.user = "amara"
    assert [site.run(asked([f"{number}"]))[1] for number in range(2)] == ["first", "first"]


def test_runs_of_which_nothing_is_known_are_those_of_their_user():
    site, found = Site(), []
    for site.user in ("amara", "mallory", "boris", "amara"):
        found.append(site.run(None)[0])
    assert len(set(found)) == 3
    assert found[0] == found[3] == FAMILY


@pytest.mark.parametrize(("histories", "same"), [("account", [True, False]), ("shared", [True, True])])
def test_a_site_may_compare_the_runs_of_an_account_or_of_all(histories, same):
    site = Site(new_modeler(histories))
    site.account = "physics"
    (mine,) = of_users(site, "amara")
    (colleague,) = of_users(site, "boris")
    site.account = "chemistry"
    (stranger,) = of_users(site, "mallory")
    assert [colleague == mine, stranger == mine] == same


def test_groups_of_two_users_are_not_merged_by_an_edit():
    site = Site()
    mine, theirs = of_users(site, "amara", "mallory")
    with pytest.raises(UnknownWork, match="is not another group"):
        site.modeler.recognizer.join(theirs, mine, "the same", 0.0)


def imported(**texts: str) -> dict[str, Any]:
    """A row of `works` as an import writes it: digests by names in place of files."""
    folder = {name.replace("_", " "): digest(text) for name, text in texts.items()}
    return asked([], program="imported heat", executable="", threads=-1) | {"folder": json.dumps(folder)}


def test_imported_runs_are_told_apart_by_what_both_records_have():
    family = Family(FAMILY, Relevance())
    requests = [
        Request.of_row(row)
        for row in (
            imported(job_name="wing", requested_time="60"),
            imported(job_name="wing"),
            imported(job_name="rotor"),
        )
    ]
    hows = []
    for number, request in enumerate(requests):
        decision = family.decide(request)
        family.add(f"lab/{number}.0.0", decision.group, request)
        hows.append(decision.how)
    assert hows == ["first", "same", "first"]


def test_imported_and_watched_runs_are_not_merged_and_nothing_is_learned_of_what_they_differ_in():
    relevance = Relevance()
    family = Family(FAMILY, relevance)
    for number, row in enumerate((imported(job_name="wing"), asked(["wing"]))):
        request = Request.of_row(row)
        decision = family.decide(request)
        family.add(f"lab/{number}.0.0", decision.group, request)
    watched = decision.group
    assert watched != FAMILY
    assert family.merge(watched, lambda _: True) is None
    assert family.merge(watched, lambda _: False) is None
    assert (relevance.agreed.total(), relevance.mattered.total()) == (0, 0)


def sent(bytes_per_interval: float) -> dict[float, Signature]:
    return {192.0: Signature({11: ClassTotals(192, 192 * 8, 192 * 4, 192 * bytes_per_interval)})}


@pytest.mark.parametrize(
    ("bytes_ratio", "time_ratio", "merged"),
    [(1.03, 1.06, False), (1.03, 1.0, True), (1.0, 1.06, True), (1.0, 1.0, True)],
    ids=["both", "traffic alone", "time alone", "neither"],
)
def test_groups_that_differ_a_little_in_what_they_send_and_in_their_time_are_not_merged(
    bytes_ratio, time_ratio, merged
):
    """Runs of each differ by a per cent in both. Of one request, all alike by the rules of traffic and pace alone."""
    rng, relevance = random.Random(3), Relevance()
    family, request = Family(FAMILY, relevance), request_of("a")
    names = {"one": (1000.0, 100.0), "other": (1000.0 * bytes_ratio, 100.0 * time_ratio)}
    for number in range(8):
        for name, (amount, seconds) in names.items():
            family.add(f"{name} {number}", name, request)
            time = RunTime.of(seconds * math.exp(rng.gauss(0, 0.01)), 8000)
            family.groups[name].learn(sent(amount * math.exp(rng.gauss(0, 0.01))), time)
    assert (family.merge("other", lambda _: True) is not None) == merged


def test_a_runtime_that_is_not_known_is_none():
    assert RunTime.of(math.nan, 8000) is RunTime.of(0.0, 8000) is None


def in_folder(number: int, deck: str = "a") -> dict[str, Any]:
    """What a run asks for in a folder with an input and a log that has grown since the last run."""
    return asked([], folder={"INCAR": deck, "log": str(number)})


@pytest.mark.parametrize("disturbed", [0, 1, 2])
def test_a_run_that_was_disturbed_while_a_file_changed_is_no_work_that_later_runs_may_be(disturbed):
    """The file was new in each run, so the disturbed one had a group of its own, at another pace."""
    site = Site()
    found = [ran(site, in_folder(n), factor=2.0 if n == disturbed else 1.0) for n in range(5)]
    assert [one["how"] for one in found] == ["first"] * 4 + ["like"]
    groups = {ran(site, in_folder(n))["workload"] for n in range(5, 9)}
    assert groups == {found[4]["workload"]}
    assert len(site.modeler.learner.workloads[found[4]["workload"]].runtimes) == 8
    # Another one is compared with them, and so are those that follow.
    last = site.begin(in_folder(9), factor=2.0)
    site.tell(traffic(last, 3.1))
    site.end(last, score=5.0)
    assert {site.assignments[last["jobs"]["job"][0]]["workload"], ran(site, in_folder(10))["workload"]} == groups


def test_a_slow_run_is_not_moved_to_a_disturbed_one_because_only_that_was_reported_when_it_was():
    site = Site()

    def run(number: int, factor: float) -> str:
        job = site.begin(in_folder(number), factor)
        site.tell(traffic(job, 3.1, look=1536 if factor > 1 else 0))
        said = str(site.assignments[job["jobs"]["job"][0]]["workload"])
        site.end(job, score=5.0 if number > 4 else 0.0)
        return said

    usual = [run(number, 2.0 if number == 2 else 1.0) for number in range(5)][4]
    assert run(5, 2.0) == usual


def test_groups_of_which_one_has_more_intervals_are_works_that_a_run_is_told_from():
    site = Site()
    assert ran(site, in_folder(0), intervals=12000)["how"] == "first"
    assert [ran(site, in_folder(n))["how"] for n in range(1, 4)] == ["first"] * 3
    assert ran(site, in_folder(4))["reason"].startswith("judged by itself")


def test_works_of_one_request_are_told_apart_by_traffic_though_a_file_changes_in_every_run():
    site = Site()
    for n in range(4):
        ran(site, in_folder(n))
    other, _ = (ran(site, in_folder(4), size=3000.0, factor=3.0)["workload"] for _ in range(2))
    assert ran(site, in_folder(5))["workload"] == FAMILY
    assert ran(site, in_folder(6), size=3000.0, factor=3.0)["workload"] == other != FAMILY
    assert ran(site, in_folder(7), known=2)["reason"].startswith("judged by itself")


def test_a_value_of_which_a_slow_run_raised_doubt_keeps_its_group_where_all_communicate_alike():
    site = Site()
    for n in range(4):
        ran(site, in_folder(n, "a"))
    relevance = next(iter(site.modeler.recognizer._relevance.values()))
    relevance.decree({"file " + digest("INCAR")}, matter=False)
    joined = site.begin(in_folder(4, "b"), factor=3.0)
    site.tell(traffic(joined, 3.1))
    site.end(joined, score=5.0)
    assert site.assignments[joined["jobs"]["job"][0]]["workload"] == FAMILY
    own = ran(site, in_folder(5, "b"), factor=3.0)["workload"]
    assert own != FAMILY
    assert {ran(site, in_folder(n, "b"), factor=3.0)["workload"] for n in range(6, 9)} == {own}
    assert ran(site, in_folder(9, "a"))["workload"] == FAMILY


def test_a_file_matters_where_runs_with_two_values_took_another_time_twice_each_and_not_by_one_disturbed_run():
    site = Site()

    def run(log: int, factor: float = 1.0) -> str:
        return site.run(in_folder(log), factor)[1]

    assert [run(0, 2.0), run(1), run(1)] == ["first", "first", "same"]
    relevance = next(iter(site.modeler.recognizer._relevance.values()))
    assert not relevance.mattered.total()
    assert [run(2), run(3), run(4)] == ["first", "first", "like"]
    site = Site()
    assert [run(0, 2.0), run(0, 2.0), run(1), run(1)] == ["first", "same", "first", "same"]
    assert next(iter(site.modeler.recognizer._relevance.values())).mattered.total() == 1
    # By time alone, which a busy hour explains: it is outweighed by what follows.
    hows = [run(n) for n in range(2, 12)]
    assert (hows[0], hows[-1]) == ("first", "like")


RUNS = 30


def runs_on_a_busy_machine(seed: int, change: float, disturbed: float) -> list[str]:
    """Runs of one command beside two files that it never opens: how each of the latter half was found, after its
    traffic was known. change: how often a file changes between runs. disturbed: how often a run takes 1.7 or 3 times as
    long; where it has a history that makes it slow, and a run that is faster than that is fast."""
    rng, site, found, files = random.Random(seed), Site(), [], [0, 0]
    for number in range(RUNS):
        files = [number if rng.random() < change else old for old in files]
        folder = {"INCAR": "a", "log": str(files[0]), "summary": str(files[1])}
        factor = rng.choice([1.7, 3.0]) if rng.random() < disturbed else 1.0
        job = site.begin(asked([], folder=folder), factor * math.exp(rng.gauss(0, 0.02)), 400)
        site.tell(traffic(job, 3.1))
        said = site.assignments[job["jobs"]["job"][0]]
        workload = site.modeler.learner.workloads.get(said["workload"])
        usual = workload.runtime if workload is not None else None
        seconds = job["runs"]["runtime_seconds"][0]
        site.end(job, score=5.0 if usual is not None and not usual.lower <= seconds <= usual.upper else 0.0)
        found.append("alone" if "judged by itself" in said["reason"] else said["how"])
    return found[RUNS // 2 :]


@pytest.mark.parametrize("change", [1.0, 0.5, 0.2])
@pytest.mark.parametrize(("disturbed", "least"), [(0.15, 0.75), (0.4, 0.5)], ids=["quiet", "busy"])
def test_files_that_change_beside_a_command_do_not_make_its_runs_several_works(change, disturbed, least):
    found = [how for seed in range(3) for how in runs_on_a_busy_machine(seed, change, disturbed)]
    print(f"{change:.0%} changes, {disturbed:.0%} disturbed:", {how: found.count(how) for how in sorted(set(found))})
    assert "alone" not in found
    assert found.count("same") + found.count("like") >= least * len(found)
