"""Nodes that work longer than the others of their job: what the test for them finds, and what it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from barograph_alerts.detection.evidence import NODES, Evidence
from barograph_alerts.detection.node_test import (
    MIN_SPANS,
    JobNodes,
    NodeSpan,
    NodeTest,
)
from barograph_alerts.places import PlaceHistory, PlaceWork, over_median_of_others
from barograph_modeler.pace.pace import Pace
from barograph_modeler.pace.progress import fit_progress
from barograph_modeler.pace.timeline import Timeline
from helpers.node_series import alarms, always_alarms, draw
from helpers.trials import windows

SECONDS = 2.0
ONSET = 15

Work = Callable[[int, int], float]
"""Own work of a node in a span, in ms."""


def spans(count: int, nodes: int, work: Work, classes: Callable[[int], dict[int, float]] = lambda i: {1: 1.0}):
    """Spans of two seconds with 1 % of noise; all wait for the slowest node, and 20 ms more."""
    rng = np.random.default_rng(nodes)
    for i in range(count):
        own = {f"n{k}": work(i, k) * float(rng.lognormal(0, 0.01)) for k in range(nodes)}
        yield NodeSpan(SECONDS * i, SECONDS * (i + 1), own, own, max(own.values()) + 20, classes(i))


def named(evidence: Evidence) -> set[str]:
    """The slow nodes of the latest alarm."""
    return set(evidence.slow_nodes.names) if evidence.slow_nodes is not None else set()


def judged(*args, **kwargs) -> Evidence:
    """Evidence of a job without windows."""
    evidence = Evidence(None, nodes=JobNodes(2))
    for span in spans(*args, **kwargs):
        evidence.add_nodes(span)
    return evidence


@pytest.mark.parametrize(("nodes", "slow"), [(2, {1}), (4, {1}), (16, {1}), (16, {1, 3}), (64, {7}), (1000, {5})])
def test_a_node_that_is_slower_from_its_middle_on_is_found_after_three_spans_or_four(nodes, slow):
    evidence = judged(ONSET + 4, nodes, lambda i, k: 120 if i >= ONSET and k in slow else 100)
    (alarm,) = evidence.alarms
    assert (alarm.kind, alarm.basis, alarm.ended_at) == ("slow", NODES, None)
    assert named(evidence) == {f"n{k}" for k in slow}
    assert alarm.onset_at == SECONDS * ONSET
    assert SECONDS * MIN_SPANS <= alarm.detected_at - alarm.onset_at <= SECONDS * (MIN_SPANS + 1)
    assert alarm.slowdown == pytest.approx(140 / 120, abs=0.04)


@pytest.mark.parametrize(
    ("what", "work"),
    [
        ("all take longer", lambda i, k: 150 if i >= ONSET else 100),
        ("one takes less", lambda i, k: 80 if i >= ONSET and k == 1 else 100),
        ("most take longer", lambda i, k: 120 if i >= ONSET and k < 5 else 100),
        ("one takes longer, and less than the others", lambda i, k: 70 + 20 * (i >= ONSET) if k == 1 else 100),
        ("one always has more work", lambda i, k: 150 if k == 1 else 100),
        ("one takes longer for two spans", lambda i, k: 150 if k == 1 and i in (ONSET, ONSET + 1) else 100),
        ("one takes longer by less than the margin", lambda i, k: 103 if k == 1 and i >= ONSET else 100),
    ],
)  # fmt: skip
def test_nobody_is_slow_where(what, work):
    assert judged(60, 6, work).alarms == [], what


def test_a_phase_in_which_the_program_gives_one_node_more_is_no_slow_node():
    def work(i, k):
        return 130 if k == 2 and i % 20 >= 12 else 100

    assert judged(200, 8, work, lambda i: {2: 1.0} if i % 20 >= 12 else {1: 1.0}).alarms == []
    # Of the same classes, it is.
    assert judged(200, 8, work).alarms


def test_an_alarm_ends_when_the_node_has_recovered_and_the_next_disturbance_is_another():
    evidence = judged(80, 8, lambda i, k: 120 if k == 1 and (20 <= i < 25 or 50 <= i < 55) else 100)
    first, second = evidence.alarms
    assert (first.onset_at, first.ended_at) == (40.0, 50.0)
    assert (second.onset_at, second.ended_at) == (100.0, 110.0)
    assert evidence.score < 1


def test_a_node_whose_rows_are_missing_is_neither_slow_nor_usual():
    evidence = Evidence(None, nodes=JobNodes(4))
    for i, span in enumerate(spans(40, 4, lambda i, k: 120 if k == 1 and i >= 20 else 100)):
        there = {name: value for name, value in span.most.items() if name != "n3" or i % 3 == 0}
        evidence.add_nodes(span._replace(most=there, mean=there))
    assert named(evidence) == {"n1"}


def test_a_node_is_found_whose_spans_differ_by_a_fifth_of_its_slowness():
    """As those of real programs do: a span that is far out is rare, there are many that are a little."""
    found = 0
    for seed in range(10):
        rng, evidence = np.random.default_rng(seed), Evidence(None, nodes=JobNodes(4))
        for i in range(75):
            own = {f"n{k}": (115 if i >= 30 and k == 1 else 100) * float(rng.lognormal(0, 0.03)) for k in range(4)}
            evidence.add_nodes(NodeSpan(SECONDS * i, SECONDS * (i + 1), own, own, max(own.values()) + 5, {1: 1.0}))
        assert named(evidence) <= {"n1"}
        found += bool(evidence.slow_nodes)
    assert found >= 9


@pytest.mark.filterwarnings("error")
def test_a_node_that_writes_what_the_others_have_computed_hides_no_slow_node():
    def work(i: int, k: int) -> float:
        return 120 if k == 0 and i % 2 else 120 if k == 1 and i >= ONSET else 100

    evidence = judged(ONSET + MIN_SPANS + 1, 4, work)
    (alarm,) = evidence.alarms
    assert (alarm.basis, alarm.onset_at, named(evidence)) == (NODES, SECONDS * ONSET, {"n1"})
    assert judged(60, 4, lambda i, k: work(0, k) if k else work(i, k)).alarms == []


def test_a_node_that_was_slow_and_of_which_nothing_is_known_any_more_is_not_named():
    """It delayed the job by less than the margin."""
    evidence = Evidence(None, nodes=JobNodes(4))
    for i, span in enumerate(spans(80, 4, lambda i, k: 120 if k == 1 and i >= ONSET else 100)):
        there = {name: value for name, value in span.most.items() if name != "n1" or i < ONSET + 10}
        evidence.add_nodes(span._replace(most=there, mean=there, pace=1000.0))
    assert evidence.score == 1
    assert evidence.alarms == []


@pytest.mark.parametrize(("history", "is_named"), [([1.0] * 60, True), ([1.0] * 30 + [1.2] * 30, False)])
def test_where_earlier_runs_took_as_long_from_there_the_program_divides_its_work_otherwise(history, is_named):
    """The windows and spans of a job in which a node has 20 % more from the middle on."""
    timelines = [Timeline(), Timeline()]
    for timeline in timelines:
        timeline.add(windows(history))
    progress = fit_progress(timelines)
    residuals = np.zeros(20)
    pace = Pace(2, 120, 1.0, 0.01, {1: 0.1}, residuals, progress)
    evidence = Evidence(pace, nodes=JobNodes(8))
    own = iter(windows([1.0] * 30 + [1.2] * 30))
    for span in spans(32, 8, lambda i, k: 120 if k == 1 and i >= 15 else 100):
        for window in own:
            evidence.add(window)
            if window.ended_at >= span.ended_at:
                break
        evidence.add_nodes(span)
        if evidence.alarms:
            break
    assert named(evidence) == ({"n1"} if is_named else set())


def history(
    runs: int, given: Callable[[int], float] = lambda k: 0.0, class_id: int = 1, nodes: int = 8
) -> PlaceHistory:
    """Healthy runs of a program that gives places so much more work (logarithm), on nodes that differ by 1 %."""
    rng, made = np.random.default_rng(runs), PlaceHistory(nodes)
    for _ in range(runs):
        logs = np.array([given(k) for k in range(nodes)]) + 0.01 * rng.standard_normal(nodes)
        made.add(PlaceWork(tuple(f"n{k}" for k in range(nodes)), {class_id: (100.0, over_median_of_others(logs))}))
    return made


def placed(*args, order: Callable[[int], int] = lambda k: k, **kwargs) -> list[NodeSpan]:
    """Spans of which it is known which place each node has."""
    found = list(spans(*args, **kwargs))
    return [span._replace(places={f"n{k}": order(k) for k in range(len(span.most))}) for span in found]


@pytest.mark.parametrize(
    ("runs", "given", "factor", "named"),
    [
        (3, 0.0, 1.2, ("n1",)),
        # Of one run it is not known how much the next may differ.
        (1, 0.0, 1.2, ()),
        # The program gives this place as much more, or less.
        (3, 0.18, 1.2, ()),
        (3, 0.18, 1.5, ("n1",)),
        (3, -0.3, 1.0, ("n1",)),
        # Less than matters.
        (8, 0.0, 1.03, ()),
        (0, 0.0, 1.5, ()),
    ],
)
def test_a_node_that_is_slow_from_the_begin_is_found_where_no_healthy_run_had_that_at_its_place(
    runs, given, factor, named
):
    usual = history(runs, lambda k: given if k == 1 else 0.0)
    test, found = NodeTest(0.01 / 8, 0.05, JobNodes(8, usual)), []
    for span in placed(12, 8, lambda i, k: 100 * factor if k == 1 else 100):
        test.add(span, disturbed=False)
        found.append(test.always_slow(1.2))
    assert test.slow() is None
    assert [one.names for one in found if one is not None][:1] == ([named] if named else [])
    if named:
        assert len([one for one in found if one is None]) < 5
        assert found[-1][:3] == (named, 0.0, 1.2)
        # It delays nobody, or that is not known.
        assert test.always_slow(1.04) is test.always_slow(math.nan) is None


def test_a_place_is_what_counts_not_the_name_of_a_node():
    """The program gives place 1 more; this time n6 is there."""
    usual = history(3, lambda k: 0.18 if k == 1 else 0.0)
    for heavy, is_named in ((6, False), (1, True)):
        test = NodeTest(0.01 / 8, 0.05, JobNodes(8, usual))
        for span in placed(
            8, 8, lambda i, k, heavy=heavy: 120 if k == heavy else 100, order=lambda k: {1: 6, 6: 1}.get(k, k)
        ):
            test.add(span, disturbed=False)
        assert (test.always_slow(1.2) is not None) == is_named


@pytest.mark.parametrize("unknown", ["a place", "the class"])
def test_without_places_or_classes_of_earlier_runs_no_node_is_slow_from_the_begin(unknown):
    test = NodeTest(0.01 / 8, 0.05, JobNodes(8, history(3, class_id=1 + (unknown == "the class"))))
    for span in placed(12, 8, lambda i, k: 150 if k == 1 else 100):
        places = {name: place for name, place in span.places.items() if name != "n7" or unknown != "a place"}
        test.add(span._replace(places=places), disturbed=False)
    assert test.always_slow(1.2) is None


def test_the_short_first_spans_count_before_it_is_known_which_places_nodes_have():
    """Of half a second each; sidecars count their ranks for a second. A node may begin with cold caches."""
    usual = history(3)
    for until, is_named in ((12, True), (2, False)):
        test, found = NodeTest(0.01 / 8, 0.05, JobNodes(8, usual)), []
        for i, span in enumerate(placed(12, 8, lambda i, k, until=until: 120 if k == 1 and i < until else 100)):
            short = span._replace(started_at=i / 2, ended_at=(i + 1) / 2, places=span.places if i >= 4 else {})
            test.add(short, disturbed=False)
            found.append(test.always_slow(1.2))
        assert [one is not None for one in found] == [is_named and i >= 5 for i in range(12)]
        assert not is_named or found[-1].started_at == 0.0


def test_a_node_that_does_not_stand_out_in_the_first_second_may_be_why_the_job_is_slow():
    """All nodes begin with work of their own then."""
    test = NodeTest(0.01 / 8, 0.05, JobNodes(8, history(3)))
    for i, span in enumerate(placed(24, 8, lambda i, k: 120 if k == 1 and i >= 2 else 100)):
        test.add(span._replace(started_at=i / 2, ended_at=(i + 1) / 2), disturbed=False)
    found = test.beyond_places(1.2)
    assert found is not None
    assert found.names == ("n1",)


def test_short_spans_are_joined_before_a_node_is_compared_with_its_own_past():
    long = judged(30, 4, lambda i, k: 120 if k == 1 and i >= ONSET else 100)
    short = Evidence(None, nodes=JobNodes(2))
    for span in spans(30, 4, lambda i, k: 120 if k == 1 and i >= ONSET else 100):
        for part in range(4):
            began = span.started_at + part * SECONDS / 4
            parts = span._replace(started_at=began, ended_at=began + SECONDS / 4)
            # The four have the mean of the long one.
            own = {name: value * (0.94 + 0.04 * part) for name, value in span.most.items()}
            short.add_nodes(parts._replace(most=own, mean=own))
    assert [alarm.onset_at for alarm in short.alarms] == [alarm.onset_at for alarm in long.alarms] == [ONSET * SECONDS]
    assert named(short) == named(long) == {"n1"}


@pytest.mark.filterwarnings("error")
def test_spans_without_a_length_are_joined_as_equal_ones():
    test = NodeTest(0.01 / 8, 0.05, JobNodes(4))
    for span in spans(30, 4, lambda i, k: 100):
        test.add(span._replace(started_at=7.0, ended_at=7.0), disturbed=False)
    assert test.score <= 1


def test_of_a_job_that_is_known_to_be_slow_the_node_that_may_explain_it_is_named():
    """Less than a test of its own needs."""
    test = NodeTest(1e-9, 0.05, JobNodes(8, history(2)))
    for span in placed(6, 8, lambda i, k: 120 if k == 1 else 100):
        test.add(span, disturbed=False)
    assert test.always_slow(1.2) is None
    found = test.beyond_places(1.2)
    assert found is not None
    assert found.names == ("n1",)
    assert found.seconds == pytest.approx(20, rel=0.2)
    assert test.beyond_places(1.6)[:2] == ((), 0.0)  # it explains little of that
    assert test.beyond_places(1.0) is test.beyond_places(math.nan) is None


def test_a_node_that_becomes_slow_is_not_slow_from_the_begin():
    test = NodeTest(0.01 / 8, 0.05, JobNodes(8, history(3)))
    for span in placed(30, 8, lambda i, k: 120 if k == 1 and i >= 9 else 100):
        test.add(span, disturbed=False)
    assert test.score > 1
    assert test.always_slow(1.2) is None


def test_healthy_runs_have_no_slow_node_from_the_begin():
    # `make bench PYTEST="-k from_the_begin"` has thousands.
    rng = np.random.default_rng(1)
    assert sum(always_alarms(rng, 8, 3)[0] >= 0 for _ in range(60)) <= 1
    assert sum(always_alarms(rng, 8, 8, 1.3)[1] == ("n1",) for _ in range(20)) >= 12


@pytest.mark.parametrize(("slow", "is_found"), [({1, 2}, True), (set(range(8)), False)])
def test_messages_that_take_longer_on_few_nodes_are_an_alarm_that_is_about_no_nodes_work(slow, is_found):
    evidence = Evidence(None, nodes=JobNodes(8))
    work = spans(ONSET + 4, 8, lambda i, k: 100)
    late = spans(ONSET + 4, 8, lambda i, k: 60 if i >= ONSET and k in slow else 20)
    for i, (span, messages) in enumerate(zip(work, late, strict=True)):
        pace = 150.0 if i >= ONSET else 120.0
        evidence.add_nodes(span._replace(pace=pace), messages._replace(pace=pace))
    assert [(alarm.basis, round(alarm.slowdown, 2)) for alarm in evidence.alarms] == [(NODES, 1.25)] * is_found
    assert evidence.slow_nodes is None


@pytest.mark.parametrize("size", range(2, 8))
def test_the_median_of_the_others(size):
    values = np.random.default_rng(size).permutation(size).astype(float) ** 2
    expected = [values[i] - np.median(np.delete(values, i)) for i in range(size)]
    assert over_median_of_others(values).tolist() == expected


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_healthy_nodes_alarm_no_more_often_than_alpha(nodes):
    # `make bench PYTEST="-k series"` has thousands.
    rng = np.random.default_rng(nodes)
    assert sum(alarms(draw(rng, nodes, spans=100), alpha=0.01)[0] >= 0 for _ in range(150)) <= 5


def test_without_a_span_there_is_no_evidence():
    test = NodeTest(0.01, 0.05, JobNodes(2))
    assert test.score == 0
    assert test.slow() is None
