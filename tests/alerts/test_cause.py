"""Who is to blame: members with known work, before and after an onset."""

from __future__ import annotations

import math

import pytest

from barograph_alerts.attribution.cause import RECENT, Attribution, phase_cause
from barograph_alerts.attribution.work import Work, WorkSpan
from barograph_alerts.job.cause_words import clause as words

ONSET = 1030.0


def attribution(*, seconds: int = 60, nodes: int = 1, **members: tuple[tuple, tuple]) -> Attribution:
    """Members as (own, wait) in ms per sync point before the onset, and since; 100 sync points a second."""
    made = Attribution(nodes)
    for i in range(seconds):
        at = 1001.0 + i
        works = tuple(
            Work(name, 100, *(value * 0.1 for value in (before if at <= ONSET else since)))
            for name, (before, since) in members.items()
        )
        made.add(WorkSpan(at, works), ONSET if at > ONSET + 10 else math.inf)
    return made


def test_the_member_that_works_longer_while_the_others_wait_is_the_straggler():
    cause = attribution(a=((4, 1), (4, 5)), b=((4, 1), (8, 1)), c=((4, 1), (4, 5))).cause(ONSET)
    assert (cause.kind, cause.members) == ("straggler", ("b",))
    assert cause.numbers["own"] == pytest.approx(4e-3)


def test_all_that_work_longer_are_all_slow():
    cause = attribution(a=((4, 1), (7, 2)), b=((4, 1), (8, 1))).cause(ONSET)
    assert (cause.kind, cause.members) == ("all-slow", ("all",))


def test_waiting_that_grows_while_nobody_works_longer_is_the_network():
    cause = attribution(a=((4, 1), (4.1, 4)), b=((4, 1), (4, 4.2))).cause(ONSET)
    assert cause.kind == "network"
    assert cause.numbers["wait"] == pytest.approx(3.2e-3)


def test_members_that_have_lost_no_time_have_no_cause():
    cause = attribution(a=((4, 1), (3.7, 0.9)), b=((4, 1), (3.8, 0.8))).cause(ONSET)
    assert (cause.kind, words(cause)) == ("unknown", "")


def test_messages_of_few_nodes_that_take_longer_are_their_links():
    def made(grown: tuple[float, ...]) -> Attribution:
        found = Attribution(len(grown))
        for i in range(60):
            late = [4e-3 * share if i >= 30 else 0.0 for share in grown]
            works = (Work(f"n{k}", 100, 0.4, 0.5, p2p_seconds=0.1 + 100 * one) for k, one in enumerate(late))
            all_wait = tuple(work._replace(wait_seconds=0.1 + 0.4 * (i >= 30)) for work in works)
            found.add(WorkSpan(1001.0 + i, all_wait))
        return found

    cause = made((1.0, 0.5, 0.1, 0.0)).cause(ONSET)
    assert (cause.kind, cause.members) == ("link", ("n0",))
    assert cause.numbers["p2p"] == pytest.approx(4e-3)
    assert made((1.0, 0.9, 0.1, 0.0)).cause(ONSET).members == ("n0", "n1")
    assert made((1.0, 1.0, 0.9, 0.8)).cause(ONSET).kind == "network"
    assert made((0.3, 0.1, 0.0, 0.0)).cause(ONSET).kind == "network"


@pytest.mark.parametrize(
    ("growths", "named"),
    [
        # n2 has the slow link; n1 waits for n2, which waits for n1, as long. Measured: tests/helpers/cluster.py.
        ((-3, 62, 58, 15, -3, -2, -3, -2), ("n2",)),
        # The same where the first rank is the neighbour of the last.
        ((58, 15, -3, -2, -3, -2, -3, 62), ("n0",)),
        # Two dimensions, 4 nodes in a row.
        ((-2, 40, -2, -2, 20, 44, 21, -2, -2, 22, -2, -2), ("n5",)),
        # The end of a row that does not close: its only neighbour waits as long.
        ((60, 58, -3, -3, -2, -3, -2, -3), ("n0", "n1")),
    ],
)
def test_of_nodes_whose_messages_take_as_long_the_one_between_all_that_wait_has_the_slow_link(growths, named):
    made = Attribution(len(growths))
    for i in range(60):
        # Node n2 has rank 4 and 5, n10 comes after n9.
        works = tuple(
            Work(f"n{k}", 100, 10.0, 3.0 + (3.0 if i >= 30 else 0.0), p2p_seconds=1 + (one / 10) * (i >= 30),
                 rank=2 * k + i % 2)
            for k, one in enumerate(growths)
        )  # fmt: skip
        made.add(WorkSpan(1001.0 + i, works))
    cause = made.cause(ONSET)
    assert (cause.kind, cause.members) == ("link", named)
    assert words(cause).startswith(": the link of n" if len(named) == 1 else ": a link of n0, n1: messages took ")


def test_nodes_that_were_slow_from_the_begin_are_compared_with_the_others():
    members = {"a": ((4, 5), (4, 5)), "b": ((8, 1), (8, 1)), "c": ((4.1, 4.9), (4.1, 4.9))}
    made = attribution(nodes=3, **members)
    cause = made.cause(900.0, slowdown=1.8)
    assert (cause.kind, cause.members) == ("straggler", ("b",))
    assert cause.numbers["own"] == pytest.approx(3.9e-3)
    # It explains less than half of that.
    assert made.cause(900.0, slowdown=9.0).kind == "unknown"
    assert attribution(nodes=4, **members).cause(900.0, slowdown=1.8).kind == "unknown"


def test_an_onset_before_anything_is_measured_and_a_single_node_blame_nobody():
    members = {"a": ((4, 1), (8, 1)), "b": ((4, 1), (4, 5))}
    assert [attribution(**members).cause(at).kind for at in (900.0, ONSET)] == ["unknown", "straggler"]
    assert attribution(a=members["a"]).cause(ONSET).kind == "all-slow"


def test_where_a_node_is_missing_the_others_do_not_make_a_network_and_a_straggler_among_them_is_named():
    waiting, working = ((4, 1), (4, 5)), ((4, 1), (8, 1))
    all_there = attribution(a=waiting, b=waiting, c=waiting)
    assert all_there.cause(ONSET).kind == "network"
    missing = attribution(nodes=4, a=waiting, b=waiting, c=waiting).cause(ONSET)
    assert (missing.kind, missing.members) == ("unknown", ())
    assert missing.uncompared == (4, 3)
    assert attribution(nodes=4, a=waiting, b=working, c=waiting).cause(ONSET).members == ("b",)
    assert attribution(nodes=2, a=working).cause(ONSET).uncompared == (2, 1)
    assert attribution(nodes=2, a=working, b=waiting).cause(900.0).uncompared == (2, 0)


def test_what_was_disturbed_is_never_taken_for_normal():
    long = attribution(seconds=30 + 4 * RECENT, a=((4, 1), (4, 5)), b=((4, 1), (8, 1)))
    assert long.cause(ONSET).numbers["own"] == pytest.approx(4e-3)


def test_one_phase_is_named_where_it_has_nearly_all_of_the_loss_and_is_not_nearly_all_of_the_work():
    cause = phase_cause({1: (10.0, 10.0), 2: (15.0, 5.0), 3: (5.5, 5.0)})
    assert cause is not None
    assert (cause.kind, cause.phase) == ("one-phase", 2)
    assert phase_cause({1: (20.0, 10.0), 2: (10.0, 5.0)}) is None
    assert phase_cause({1: (20.0, 10.0), 2: (1.0, 1.0)}) is None
    assert phase_cause({1: (5.0, 10.0)}) is None
    assert phase_cause({}) is None


def test_after_a_disturbance_what_was_normal_before_it_is_still_known():
    made = attribution(a=((4, 1), (4, 5)), b=((4, 1), (8, 1)))
    made.end_disturbance(ONSET)
    assert made.cause(2000.0).kind == "unknown"
    for i in range(10):
        made.add(WorkSpan(2001.0 + i, (Work("a", 100, 0.8, 0.1), Work("b", 100, 0.4, 0.5))))
    assert made.cause(2000.0).members == ("a",)
