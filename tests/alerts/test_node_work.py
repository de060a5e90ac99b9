"""What nodes say of the same sync points, put together."""

from __future__ import annotations

from collections import Counter

import pytest

from barograph_alerts.attribution.cause import Attribution
from barograph_alerts.attribution.node_work import NodeWork

SYNCS = 128


def joined(nodes: int) -> NodeWork:
    """Of a job whose rank 0 is on n1."""
    made = NodeWork()
    assert made.begin(nodes, "n1", Counter()) == []
    return made


def row(i: int, host: str, own: float, wait: float, *, ranks: int = 2, busiest: int = 0, most: float = 0.0) -> dict:
    """A block of two seconds; own and wait in ms per rank and sync point, `most` of the busiest rank."""
    total = 1e-3 * SYNCS * ranks
    return {"host": host, "world": 0, "ranks": ranks, "first_index": SYNCS * i, "length": SYNCS, "count": SYNCS,
            "own_rank": busiest, "own_rank_seconds": 1e-3 * SYNCS * (most or own), "own_seconds": own * total,
            "p2p_seconds": 0.5 * wait * total, "wait_seconds": 0.5 * wait * total,
            "least_wait_seconds": 0.2e-3 * SYNCS * wait, "ended_at": 1000.0 + 2 * i}  # fmt: skip


def test_on_one_node_the_busiest_rank_is_named_though_it_was_another_one_before():
    nodes, attribution = joined(1), Attribution()
    for i in range(40):
        slow = i >= 20
        # Four ranks; of equal ones now this one, now that one works most. Then rank 2 takes twice as long.
        one = row(i, "n1", 5 if slow else 4, 3 if slow else 1, ranks=4, busiest=2 if slow else i % 2,
                  most=8 if slow else 4.1)  # fmt: skip
        stretch = nodes.add(one)
        assert stretch is not None
        attribution.add(stretch)
    cause = attribution.cause(1039.0)
    assert (cause.kind, cause.members) == ("straggler", ("rank 2",))


def test_one_rank_of_many_that_works_longer_makes_its_node_the_straggler():
    nodes, attribution = joined(3), Attribution(3)
    for i in range(40):
        slow = i >= 20
        for host in ("n1", "n2", "n3"):
            # Of 32 ranks one takes 2 ms longer: the mean of its node grows by 0.06 ms.
            is_slow = slow and host == "n2"
            one = row(i, host, 10 + is_slow * 2 / 32, 3 if slow else 1, ranks=32, most=10.2 + is_slow * 2)
            if (span := nodes.add(one)) is not None:
                attribution.add(span)
    cause = attribution.cause(1039.0)
    assert (cause.kind, cause.members) == ("straggler", ("n2",))
    assert cause.numbers["own"] == pytest.approx(2e-3)


def test_a_program_on_some_nodes_of_a_job_is_compared_at_once():
    """Of four nodes two run the second program."""
    nodes = joined(4)
    assert nodes.add_ranks(0, "n1", 0, 2, 8) == []
    assert nodes.add_ranks(1, "n2", 0, 2, 4) == []
    second = [row(i, host, 4, 1) | {"world": 1} for i in range(3) for host in ("n2", "n3")]
    assert [nodes.add(one) for one in second[:4]] == [None] * 4
    assert [len(span.members) for span in nodes.add_ranks(1, "n3", 2, 2, 4)] == [2, 2]
    assert [nodes.add(one) is not None for one in second[4:]] == [False, True]
    # Of the first one, all nodes are waited for as long as not all ranks are known.
    assert [nodes.add(row(0, f"n{k}", 4, 1)) is not None for k in (1, 2, 3, 4)] == [False, False, False, True]


def test_a_program_on_more_nodes_than_the_first_waits_for_all_of_them():
    nodes = joined(2)
    for host in ("n1", "n2", "n3"):
        nodes.add_ranks(1, host, -1, 1, 3)
    found = [nodes.add(row(0, host, 4, 1) | {"world": 1}) for host in ("n1", "n2", "n3")]
    assert [span is not None for span in found] == [False, False, True]
