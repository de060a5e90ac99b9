"""Anchors are found in generated sequences of calls, from a seed, and in none where there is no loop."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_agent.loops import anchors, collectives
from barograph_agent.loops.anchors import Anchor
from barograph_agent.ring.reader import CALL, OPERATIONS, Records
from simulation.calls import Program

NUMBERS = {name: number for number, name in OPERATIONS.items()}
PROGRAMS = 150

Call = tuple[int, str, int, int]
"""Site, operation, communicator and other rank."""


def records(calls: list[Call], seconds: list[float] | None = None) -> Records:
    found = np.zeros(len(calls), CALL)
    found["site"] = [site for site, *_ in calls]
    found["op"] = [NUMBERS[operation] for _, operation, *_ in calls]
    found["comm"] = [comm for *_, comm, _ in calls]
    found["detail"] = [comm + 100 * peer for *_, comm, peer in calls]
    found["exit_ns"] = np.cumsum(np.array(seconds or [1e-4] * len(calls)) * 1e9).astype(np.uint64)
    return found


KINDS = ("steps", "nested", "converging", "tasks")
"""Of generated programs, those with one loop or with loops in a loop."""


def counted(seed: int) -> tuple[int, Program] | None:
    """Iterations by the anchor in the first half of a program's calls, of all of it."""
    program = Program(seed)
    if program.kind not in KINDS:
        return None
    made, ends = program.traces[0].arrays()
    calls = np.zeros(len(made), CALL)
    calls["site"], calls["op"], calls["comm"], calls["detail"] = made.T
    calls["exit_ns"] = ends * 1e9
    anchor = anchors.find(calls[: len(calls) // 2])
    return 0 if anchor is None else len(anchors.occurrences(calls, anchor)), program


def test_a_master_has_the_same_anchor_however_many_tasks_have_ended() -> None:
    """It has sent one to each worker before the first answer: there are fewer of these."""
    rng = np.random.default_rng(11)
    found = set()
    for workers in (3, 8, 30):
        calls: list[Call] = [(1, "Send", 0, worker) for worker in range(workers)]
        for worker in rng.integers(0, workers, 12 * workers).tolist():
            calls += [(2, "Iprobe", 0, 99), (3, "Recv", 0, worker), (1, "Send", 0, worker)]
        for tasks in range(4 * workers, 12 * workers, workers):
            found.add(anchors.find(records(calls[: workers + 3 * tasks])))
    assert found == {Anchor(NUMBERS["Recv"], 3)}


def test_tags_that_are_counted_up_tell_no_messages_apart() -> None:
    """Those of minisweep's blocks: each tag comes for a while, with two ranks in turn."""
    calls: list[Call] = []
    for block in range(640):
        calls += [(1, "Isend", 0, block // 16 * 2 + block % 2), (2, "Waitall", 0, 0), (3, "Waitall", 0, 0)]
    found = anchors.find(records(calls))
    assert found is not None
    assert len(anchors.occurrences(records(calls), found)) == 640


@pytest.mark.parametrize("each", [10, 12, 24, 36])
def test_a_task_is_an_iteration_where_a_master_tests_for_answers_and_waits_for_the_last_ones(each: int) -> None:
    """It deals out a list of tasks to three workers, waits for all answers, and begins the next list."""
    rng = np.random.default_rng(4)
    calls: list[Call] = []
    for _ in range(40):
        sends = [(1, "Send", 0, int(rng.integers(50))) for _ in range(each)]
        calls += sends[:3]
        for task in range(each):
            probe = (2, "Iprobe", 0, 99) if task < each - 3 else (3, "Probe", 0, 99)
            calls += [probe, (4, "Recv", 0, int(rng.integers(50))), *sends[3 + task : 4 + task]]
    for end in range(len(calls) // 2, len(calls), 37):
        assert anchors.find(records(calls[:end])) == Anchor(NUMBERS["Recv"], 4)


def test_two_loops_one_after_the_other_are_one_iteration() -> None:
    """Neither has calls between its passes that come once: the anchor is each 50th call of one of them."""
    calls: list[Call] = [*[(1, "Send", 0, 1)] * 50, *[(2, "Recv", 0, 1)] * 50] * 12
    for end in range(900, len(calls), 41):
        anchor = anchors.find(records(calls[:end]))
        assert anchor is not None
        assert anchor.every == 50


@pytest.mark.parametrize(("share", "interrupted"), [(0.3, True), (0.7, False)])
def test_a_loop_is_interrupted_if_it_pauses_again_and_again_for_much_of_the_time(
    share: float, interrupted: bool
) -> None:
    calls: list[Call] = [*[(1, "Recv", 0, 1)] * 20, *[(2, "Send", 0, 1)] * 10] * 4
    seconds = [*[share / 20] * 20, *[(1 - share) / 10] * 10] * 4
    assert anchors.is_inner(records(calls, seconds), Anchor(NUMBERS["Recv"], 1)) is interrupted


def test_the_iterations_of_generated_programs_are_found() -> None:
    missed, played = [], 0
    for seed in range(PROGRAMS):
        if (outcome := counted(seed)) is None:
            continue
        found, program = outcome
        played += 1
        counts = [len(loop.ends) for loop in program.loops if loop.may_be]
        if not any(abs(found - count) <= 0.02 * count for count in counts):
            missed.append((seed, program.kind, found, counts))
    assert played > PROGRAMS / 2
    assert len(missed) <= 0.05 * played, missed[:20]


def test_a_loop_in_which_every_token_comes_twice_has_each_second_one() -> None:
    a, b = (1, "Send", 1, 0), (2, "Recv", 1, 0)
    anchor = anchors.find(records([a, a, b, b] * 100))
    assert anchor is not None
    assert anchor.every == 2
    assert len(anchors.occurrences(records([a, a, b, b] * 100), anchor)) == 100


def test_a_rare_call_that_takes_most_of_the_time_is_the_iteration() -> None:
    inner, outer = (1, "Sendrecv", 1, 1), (2, "Bcast", 4, 0)
    calls = [*[inner] * 20, outer] * 30
    quick = anchors.find(records(calls))
    slow = anchors.find(records(calls, [1.0 if call == outer else 1e-4 for call in calls]))
    assert quick == Anchor(NUMBERS["Sendrecv"], 1)
    assert slow == Anchor(NUMBERS["Bcast"], 2)


def test_the_loop_may_have_begun_with_the_last_quarter() -> None:
    calls = [(1, "Send", 1, 0), (2, "Recv", 1, 0), (3, "Wait", 0, 0)] * 300 + [(7, "Waitall", 0, 0)] * 250
    assert anchors.find(records(calls)) == Anchor(NUMBERS["Waitall"], 7)


@pytest.mark.parametrize("seed", range(5))
def test_calls_in_no_order_have_no_anchor_but_the_most_frequent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["Send", "Recv", "Wait", "Bcast"]
    calls = [(int(n), names[n % 4], 1, 0) for n in rng.integers(1, 30, 500)]
    assert anchors.find(records(calls)) is None


def test_what_comes_every_tenth_time_at_the_end_of_an_iteration_and_the_begin_of_the_next_is_part_of_these() -> None:
    """Molecular dynamics: every tenth step finds neighbours, by other calls, and the next one reduces energies."""
    step = [(1, "Recv", 1, 2), (2, "Send", 1, 2), (3, "Waitall", 0, 0), (4, "Sendrecv", 1, 1)]
    search = [*step[:2], *((site, "Sendrecv", 1, 1) for site in (5, 6, 7)), step[2]]
    reduced = [step[0], (8, "Allreduce", 4, 0), *step[1:]]
    calls = [*search, *reduced, *step * 8] * 30
    anchor = anchors.find(records(calls))
    assert anchor is not None
    assert len(anchors.occurrences(records(calls), anchor)) == 300


@pytest.mark.parametrize("operation", ["Recv", "Waitany", "Iprobe"])
def test_a_task_is_an_iteration_also_where_workers_take_turns(operation: str) -> None:
    asked = (1, operation, 1, 0)
    calls = [call for worker in [1, 2] * 100 for call in (asked, (2, "Send", 1, worker))]
    anchor = anchors.find(records(calls))
    assert anchor is not None
    assert len(anchors.occurrences(records(calls), anchor)) == 200


def test_messages_to_all_neighbours_are_one_iteration() -> None:
    pairs = [call for peer in (1, 2, 3) for call in ((1, "Send", 1, peer), (2, "Recv", 1, peer))]
    anchor = anchors.find(records(pairs * 100))
    assert anchor is not None
    assert len(anchors.occurrences(records(pairs * 100), anchor)) == 100


@pytest.mark.parametrize("tasks", [7, 8, 9, 10, 25])
def test_few_tasks_are_iterations_whether_the_last_one_is_answered_or_not(tasks: int) -> None:
    """A master receives from any worker, then the result from that one: workers that are as fast take turns."""
    calls: list[Call] = []
    for task in range(tasks):
        calls += [(1, "Recv", 1, 1), (2, "Recv", 1, 2 + task % 2)]
    for made in (calls, calls[:-1]):
        anchor = anchors.find(records(made))
        assert anchor is not None
        assert (anchor.match, anchor.every) == (0, 1)
        assert len(anchors.occurrences(records(made), anchor)) >= tasks - 1


@pytest.mark.parametrize(
    ("lengths", "many"),
    [
        ([0.1] * 10, True),
        ([0.1] * 6, False),
        ([0.1 / 2**level for level in range(10)], False),
        ([0.01] * 9 + [1.0], False),
    ],
    ids=["steps", "few steps", "coarser and coarser grids", "fields and work"],
)
def test_iterations_outnumber_collectives_if_they_are_many_and_alike(lengths: list[float], many: bool) -> None:
    ends = np.cumsum(lengths * 5)
    times, points = (
        np.round(seconds * 1e9).astype(np.int64) for seconds in (ends, ends[len(lengths) - 1 :: len(lengths)])
    )
    assert collectives.outnumber(times, points) is many
    # Of a loop that has begun late, the newest rounds decide.
    begun = np.arange(12) * 10**6
    assert collectives.outnumber(np.append(begun, times + 10**8), np.append(begun, points + 10**8)) is many


@pytest.mark.parametrize(("few", "many"), [(20, True), (120, False)])
def test_some_steps_with_a_collective_each_before_many_without_change_nothing(few: int, many: bool) -> None:
    """A solver of time steps: some steps of conjugate gradients, then Chebyshev's with a check after each twentieth."""
    ends = np.arange(1, 5 * (few + 200) + 1) * 10**7
    place = np.arange(len(ends)) % (few + 200)
    points = ends[(place < few) | ((place - few) % 20 == 19)] + 1
    assert collectives.outnumber(ends, points) is many


@pytest.mark.parametrize("seed", range(5))
def test_steps_of_a_rank_that_loses_its_core_now_and_then_are_alike_and_passes_through_grids_are_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    late = np.where(rng.random(400) < 0.1, 20 * 10**7, 0)

    def outnumbers(seconds: np.ndarray) -> bool:
        ends = np.cumsum(seconds + late)
        return collectives.outnumber(ends, ends[9::10] + 1)

    assert outnumbers(np.full(400, 10**7))
    assert not outnumbers(np.tile(10**8 // 2 ** np.arange(10), 40))


@pytest.mark.parametrize(("others", "same"), [(2, True), (9, True), (9, False)])
def test_few_messages_of_many_with_the_same_rank_repeat(others: int, *, same: bool) -> None:
    """The others are with ranks at random: an iteration has some calls that are its own."""
    rng = np.random.default_rng(2)
    calls: list[Call] = []
    for step in range(40):
        calls += [(1, "Isend", 0, 1 if same else step % 4)]
        calls += [(2, "Send", 0, int(rng.integers(200))) for _ in range(others)]
        calls.append((3, "Waitall", 0, 0))
    made = records(calls)
    made["detail"][made["op"] == NUMBERS["Waitall"]] = 0
    assert anchors.repeats(made, Anchor(NUMBERS["Waitall"], 3)) is same
