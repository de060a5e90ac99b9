"""What kernels know of a slowdown, as its cause and in words: from rows of `pressures`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from barograph_agent.protocol.tables import TABLES
from barograph_alerts.attribution.cause import (
    ALL,
    AllSlow,
    Cause,
    LongerWaits,
    LongerWork,
    OwnGrowth,
    SlowMessages,
    Uncompared,
)
from barograph_alerts.attribution.kernel.kernel_account import RECENT, KernelAccount
from barograph_alerts.attribution.kernel.pressure import NODE, pressure
from barograph_alerts.job import cause_words
from barograph_alerts.processor import Scorer
from helpers.jobs import Simulation, scores_of
from helpers.pressures import columns, row
from helpers.trials import judge, prepared

ONSET = 1060.0
NETWORK = Cause(LongerWaits(1.0), ALL)
HOG = {"process": "python3", "process_of": "other", "process_core": 1, "process_seconds": 2.0}


def account(*rows: dict[str, Any], names_others: bool = True) -> KernelAccount:
    made = KernelAccount()
    for one in rows:
        assert set(one) == set(TABLES["pressures"].columns)
        made.add(pressure(one, names_others=names_others))
    return made


def disturbed(rank: int = 1, host: str = "n1", node: dict[str, Any] | None = None, **values: Any) -> list[dict]:
    """A quiet minute, then 20 s in which a rank has these figures."""
    rows = [row(1000.0, host=host, seconds=60.0)]
    for at in np.arange(ONSET, ONSET + 20, 4.0):
        rows.append(row(at, host=host, **(node or {})))
        if values:
            rows.append(row(at, rank, host, **values))
    return rows


def explain(made: KernelAccount, lost: float = 0.5, cause: Cause = NETWORK) -> Cause:
    return made.explain(cause, ONSET, math.inf, lost)


def test_a_rank_that_waits_for_a_core_is_the_cause_with_the_process_that_took_it():
    cause = explain(account(*disturbed(delay_seconds=0.48, **HOG)))
    assert (cause.kind, cause.members, cause.numbers["rank"]) == ("core", ("rank 1",), 1)
    assert cause.numbers["waited"] == pytest.approx(0.48)
    words = "rank 1 waited 48% of its time for a core: `python3` of another user runs on core 1"
    assert cause_words.reason(cause, "", "sync point") == words


@pytest.mark.parametrize(("began", "seconds"), [(ONSET - 2.8, 4.0), (ONSET - 1.0, 2.2), (ONSET - 3.4, 4.0)])
def test_a_core_that_was_taken_for_the_end_of_a_span_is_named(began, seconds):
    inside = began + seconds - ONSET
    rows = [row(1000.0, seconds=began - 1000.0), row(began, seconds=seconds)]
    rows.append(row(began, 1, seconds=seconds, delay_seconds=0.9 * inside / seconds, **HOG))
    cause = explain(account(*rows))
    assert (cause.kind, cause.members) == ("core", ("rank 1",))
    assert cause.numbers["waited"] == pytest.approx(0.9)


def test_what_is_lost_as_usual_in_a_span_that_begins_before_is_no_cause():
    rows = [row(1000.0, seconds=57.0), row(1000.0, 1, seconds=57.0, delay_seconds=0.3), row(ONSET - 3.0)]
    rows.append(row(ONSET - 3.0, 1, delay_seconds=0.3, **HOG))
    assert explain(account(*rows)).kind == "network"


@pytest.mark.parametrize(
    ("beside", "end"),
    [
        (HOG | {"process_of": "same"}, ": `python3` of the same user runs on core 1"),
        (HOG | {"process": "none"}, ": a process of another user runs on core 1"),
        (HOG | {"process": "7", "process_of": "rank"}, ": rank 7 runs on core 1 too"),
        (HOG | {"process": "x" * 128}, f": `{'x' * 32}` of another user runs on core 1"),
        ({}, " for a core"),
    ],
)
def test_who_took_the_core_is_said_as_far_as_it_is_known(beside, end):
    cause = explain(account(*disturbed(delay_seconds=0.5, **beside)))
    assert cause_words.reason(cause, "", "sync point").endswith(end)


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        (disturbed(stopped_seconds=0.9), "stopped", "rank 1 was stopped by a signal for 90% of its time"),
        (disturbed(blocked_seconds=0.6), "disk", "rank 1 waited 60% of its time for a disk or a file system"),
        (disturbed(blocked_seconds=0.6, major_faults=300), "memory",
         "rank 1 waited 60% of its time for memory (300 pages a second read from a disk)"),
        (disturbed(node={"swapped_pages": 5000, "memory_pressure": 0.7}), "memory",
         "n1 waited 70% of its time for memory (5000 swapped)"),
        (disturbed(node={"steal_seconds": 0.4}), "steal", "n1 had 40% of its cores taken by the hypervisor"),
    ],
)  # fmt: skip
def test_each_kind_of_loss_is_a_cause_with_words(rows, kind, words):
    cause = explain(account(*rows))
    assert (cause.kind, cause_words.reason(cause, "", "sync point")) == (kind, words)


def test_what_was_so_before_the_onset_is_not_the_cause():
    rows = []
    for at in np.arange(1000.0, ONSET + 20, 4.0):
        rows += [row(at), row(at, 1, delay_seconds=0.48)]
    cause = explain(account(*rows))
    assert cause.kind == "network"
    assert cause.silent == ("n1",)  # nothing has grown


def stopped_from(began: float, share: float) -> list[dict[str, Any]]:
    rows = []
    for at in np.arange(1000.0, ONSET + 20, 4.0):
        rows += [row(at), row(at, 1, stopped_seconds=share if at >= began else 0.0)]
    return rows


def test_stops_that_cost_nothing_at_first_are_the_cause_of_what_they_cost_later():
    cause = explain(account(*stopped_from(ONSET - 30, 0.4)))
    assert (cause.kind, cause.members) == ("stopped", ("rank 1",))
    assert explain(account(*stopped_from(1000.0, 0.4))).kind == "network"  # a program that limits its ranks so


@pytest.mark.parametrize("lost", [0.4, 0.6, 0.9])
@pytest.mark.parametrize(("figure", "kind", "least"), [("stopped", "stopped", 0.3), ("delay", "core", 0.5)])
def test_what_is_too_little_for_the_loss_is_not_the_cause_nor_is_the_kernel_silent(figure, kind, least, lost):
    """Peers wait for a stopped rank for longer than it is stopped."""
    for share in (0.15, 0.25, 0.35, 0.45, 0.55, 0.9):
        cause = explain(account(*disturbed(**{f"{figure}_seconds": share * lost})), lost)
        assert (cause.kind, cause.silent) == (kind if share >= least else "network", ())


def test_an_earlier_disturbance_is_not_what_was_usual():
    rows = [row(1000.0, seconds=10.0)]
    for start in np.arange(1010.0, ONSET + 20, 10.0):
        rows += [row(start, seconds=10.0), row(start, rank=1, seconds=10.0, delay_seconds=0.4)]
    assert account(*rows).explain(NETWORK, ONSET, math.inf, 0.4).kind == "network"
    assert account(*rows).explain(NETWORK, ONSET, math.inf, 0.4, [(1010.0, ONSET)]).kind == "core"


def test_ranks_that_wait_in_turn_explain_the_loss_together():
    rows = [row(1000.0, seconds=60.0)]
    for at in np.arange(ONSET, ONSET + 20, 4.0):
        rows += [row(at), *(row(at, rank, delay_seconds=0.2) for rank in range(4))]
    cause = explain(account(*rows))
    assert (cause.kind, len(cause.members)) == ("core", 4)
    assert cause_words.reason(cause, "", "sync point").startswith(
        "rank 0 (and 3 more) waited 20% of its time for a core"
    )


def test_where_the_kernel_shows_nothing_the_sentence_says_so_and_where_it_is_blind_it_does_not():
    quiet = [row(1000.0, seconds=60.0), row(ONSET, seconds=30.0)]
    cause = explain(account(*quiet))
    assert (cause.kind, cause_words.beside(cause)) == ("network", "the kernel of n1 shows no reason")
    blind = [one | {"delay_seconds": math.nan} for one in quiet]
    assert explain(account(*blind)).silent == ()
    assert explain(account(quiet[0])).silent == ()
    two = [*quiet, row(ONSET, seconds=30.0, host="n2")]
    assert cause_words.beside(explain(account(*two))) == "the kernels of 2 nodes show no reason"


def test_on_several_nodes_the_node_is_the_member_and_only_a_straggler_counts():
    rows = [*disturbed(delay_seconds=0.5, rank=5, host="n2"), *disturbed(host="n1")]
    cause = explain(account(*rows), cause=Cause(AllSlow(), ALL))
    assert (cause.members, cause_words.reason(cause, "", "sync point")) == (
        ("n2",),
        "rank 5 on n2 waited 50% of its time for a core",
    )
    # They wait for a core while they wait for each other.
    assert explain(account(*rows)).kind == "network"
    uncompared = Cause(uncompared=Uncompared(2, 0))
    assert explain(account(*rows), cause=uncompared).kind == "unknown"
    silent = [row(ONSET - 10, host="n3"), *rows]
    late = explain(account(*silent), cause=Cause(LongerWork(1.0), ("n3",)))
    assert (late.kind, late.members, late.silent) == ("straggler", ("n3",), ())
    both = explain(account(*rows), cause=Cause(LongerWork(1.0), ("n1", "n2")))
    assert (both.kind, both.members) == ("straggler", ("n1", "n2"))
    straggler = Cause(LongerWork(1.0), ("n1",))
    kept = explain(account(*rows), cause=straggler)
    assert (kept.kind, kept.members, kept.silent) == ("straggler", ("n1",), ("n1",))


@pytest.mark.parametrize(("hosts", "kind"), [(4, "unknown"), (3, "unknown"), (2, "core"), (1, "core")])
def test_of_a_job_of_which_nothing_else_is_known_no_node_is_to_blame_where_most_wait_for_cores(hosts, kind):
    """Ranks that spin while they wait for others drive each other from their cores."""
    rows = [one for n in range(4) for one in disturbed(rank=n, host=f"n{n}", delay_seconds=0.46 if n < hosts else 0.0)]
    cause = explain(account(*rows), lost=0.35, cause=Cause())
    assert (cause.kind, cause.members) == (kind, tuple(f"n{n}" for n in range(hosts)) if kind == "core" else ())
    shown = "" if kind == "core" else f"ranks on {hosts} nodes waited up to 46% of their time for a core"
    assert cause_words.beside(cause) == shown


@pytest.mark.parametrize(("process", "end"), [(HOG, ": `python3` of another user runs on core 1"), ({}, "")])
def test_who_takes_the_cores_of_all_nodes_is_told_though_no_node_is_to_blame(process, end):
    rows = [one for n in range(4) for one in disturbed(rank=n, host=f"n{n}", delay_seconds=0.5, **process)]
    cause = explain(account(*rows), lost=0.35)
    assert (cause.kind, cause.silent, cause.numbers["wait"]) == ("network", (), 1.0)
    assert cause_words.beside(cause) == f"ranks on 4 nodes waited up to 50% of their time for a core{end}"
    ranks = explain(account(*(one | {"process_of": "rank"} if process else one for one in rows)), lost=0.35)
    assert cause_words.beside(ranks) == "ranks on 4 nodes waited up to 50% of their time for a core"


@pytest.mark.parametrize(("process", "kind"), [(HOG, "core"), ({}, "unknown")])
def test_that_ranks_wait_for_cores_from_the_begin_on_may_be_usual_unless_somebody_is_seen_to_take_them(process, kind):
    """As of programs that spin, with more ranks than cores: slow by a link, each waits half of its time for a core."""
    cause = explain(account(*disturbed(delay_seconds=0.52, **process)[1:]), lost=0.6, cause=Cause())
    assert (cause.kind, "core_waited" in cause.numbers) == (kind, False)


def test_where_no_node_did_more_than_in_earlier_runs_a_slower_core_is_not_the_cause():
    rows = [one for n in range(4) for one in disturbed(rank=n, host=f"n{n}", delay_seconds=0.0 if n else 0.46)]
    as_before = Cause(AllSlow(as_before=True), ALL)
    assert explain(account(*rows), lost=0.3, cause=as_before).kind == "all-slow"
    assert explain(account(*rows), lost=0.3, cause=Cause(AllSlow(), ALL)).kind == "core"


GROWN = {"n2": OwnGrowth(1, 0.03, 0.03, 0.1, 0.13), "n1": OwnGrowth(1, 0.0, 0.0, 0.1, 0.13)}
"""n2 works 30 ms longer per sync point, for which n1 waits."""
SPEED = {"clock_hz": 2.7e9}


@pytest.mark.parametrize(
    ("before", "since", "computed"),
    [
        ({}, {}, True),
        ({"run_seconds": 0.5}, {"run_seconds": 0.62}, True),
        ({"run_seconds": 0.5}, {"run_seconds": 0.53}, True),
        ({"run_seconds": 0.5}, {"run_seconds": 0.4}, False),
        ({"run_seconds": 0.0}, {"run_seconds": 0.0}, False),
        ({}, {"run_seconds": 0.8}, False),
        ({}, {"run_seconds": 0.9, "delay_seconds": 0.04}, True),
        ({}, {"clock_hz": 2.4e9}, False),
        ({}, {"clock_hz": 2.6e9}, True),
        ({"clock_hz": math.nan}, {"clock_hz": math.nan}, True),
    ],
)
def test_own_work_grew_by_computing_where_ranks_sleep_no_longer_and_cores_are_no_slower(before, since, computed):
    rows = [row(1000.0, host="n2", seconds=60.0, **SPEED | before), row(ONSET, host="n2", **SPEED | since)]
    cause = explain(account(*rows), cause=Cause(LongerWork(0.03), ("n2",), growths=GROWN))
    assert cause.computed is computed


@pytest.mark.parametrize(
    ("run", "seconds", "kind"),
    [(0.2, 60.0, "straggler"), (0.62, 60.0, "throttled"), (0.0, 60.0, "throttled"), (0.2, 1.0, "throttled")],
    ids=["sleeps longer", "is awake longer", "not known", "not known yet"],
)
def test_a_lower_clock_is_not_the_cause_where_ranks_sleep_longer(run, seconds, kind):
    usual = {"run_seconds": 0.2, **SPEED}
    slower = {"run_seconds": run, "clock_hz": 1.9e9}
    rows = [row(1000.0, host="n2", seconds=60.0, **usual), row(ONSET, host="n2", seconds=seconds, **slower)]
    assert explain(account(*rows), cause=Cause(LongerWork(0.03), ("n2",), growths=GROWN)).kind == kind


def test_whether_own_work_grew_by_computing_is_not_known_from_a_second_or_from_another_node():
    straggler = Cause(LongerWork(0.03), ("n2",), growths=GROWN)
    short = [row(1000.0, host="n2", seconds=60.0, **SPEED), row(ONSET, host="n2", seconds=1.0, **SPEED)]
    other = [row(1000.0, seconds=60.0, **SPEED), row(ONSET, **SPEED)]
    assert explain(account(*short), cause=straggler).computed is None
    assert explain(account(*other), cause=straggler).computed is None
    assert explain(account(*other), cause=replace(straggler, growths={})).computed is False


@pytest.mark.parametrize("inside", [0.4, 1.0, 2.4, 7.0])
def test_the_first_quiet_span_that_ends_soon_after_the_onset_is_what_was_before(inside):
    straggler = Cause(LongerWork(0.03), ("n2",), growths=GROWN)
    rows = [row(ONSET - 17.0, host="n2", seconds=17.0 + inside, **SPEED)]
    rows.append(row(ONSET + inside, host="n2", run_seconds=0.4, **SPEED))
    found = explain(account(*rows), cause=straggler)
    assert (found.computed, found.silent) == (False, ("n2",))


def test_of_stragglers_the_one_is_named_whose_work_did_not_grow_by_computing():
    grown = {"n1": OwnGrowth(1, 0.02, 0.02, 0.1, 0.13), "n2": OwnGrowth(1, 0.03, 0.031, 0.1, 0.13)}
    both = Cause(LongerWork(0.031), ("n1", "n2"), growths=grown)
    rows = [row(1000.0, host=host, seconds=60.0, **SPEED) for host in grown]
    rows += [row(ONSET, **SPEED, run_seconds=0.6), row(ONSET, host="n2", **SPEED)]
    found = explain(account(*rows), cause=both)
    assert (found.kind, found.members, found.numbers["own"]) == ("straggler", ("n1",), 0.02)
    # Where all compute more, all are named.
    rows[2] = row(ONSET, **SPEED)
    assert explain(account(*rows), cause=both).members == ("n1", "n2")


def test_an_account_is_bounded_and_knows_what_was_before():
    made = KernelAccount()
    for i in range(5 * RECENT):
        made.add(pressure(row(ONSET - 4.0 * (5 * RECENT - i), i % 50_000, delay_seconds=0.3), names_others=True))
    for one in disturbed(delay_seconds=0.5):
        made.add(pressure(one, names_others=True), ONSET)
    assert len(made._recent) <= RECENT
    assert len(made._before.sums) <= 4096
    assert explain(made).kind == "core"


def test_rows_that_make_no_sense_are_no_reason_to_fail():
    strange = [
        row(ONSET, 1, seconds=-5.0, delay_seconds=0.5),
        row(math.nan, 1, delay_seconds=0.5),
        row(ONSET, 1, delay_seconds=math.inf, major_faults=-(2**40), cores=-7),
        row(ONSET, NODE, seconds=0.0),
    ]
    assert explain(account(*strange)).kind == "network"


def test_an_alarm_says_which_rank_waited_for_a_core_and_not_that_nobody_did():
    simulation = Simulation()
    scorer: Scorer = prepared(simulation)
    job = simulation.job(slow_from=4000, factor=2.0)
    onset = float(job["blocks"]["ended_at"][4000])
    name = job["jobs"]["job"][0]
    rows = [row(onset - 10, seconds=10.0)]
    for at in np.arange(onset, onset + 20, 4.0):
        rows += [row(at), row(at, 1, delay_seconds=0.5, **HOG)]
    scorer.observe("pressures", columns([one | {"job": name} for one in rows]), 0.0)
    final = judge(scorer, job)[-1]
    assert (final["state"], final["cause"], final["members"]) == ("slow", "core", '["rank 1"]')
    assert ": rank 1 waited 50% of its time for a core: a process of another user runs on core 1 (" in final["sentence"]
    assert "python3" not in str(final)


def test_a_stopped_process_is_why_a_job_is_stalled():
    simulation = Simulation()
    scorer: Scorer = prepared(simulation)
    job = simulation.job()
    judge(scorer, job, until=4000)
    last, name = float(job["blocks"]["ended_at"][3999]), job["jobs"]["job"][0]
    scorer.observe("blocks", {key: values[4000:4001] for key, values in job["blocks"].items()}, last + 0.01)
    rows = [row(last - 10, seconds=10.0)]
    for at in np.arange(last, last + 40, 4.0):
        rows += [row(at), row(at, 1, stopped_seconds=1.0)]
    scorer.observe("pressures", columns([one | {"job": name} for one in rows]), 0.0)
    silent = {"job": [name] * 2, "host": ["n1"] * 2, "since": [last + 0.01] * 2, "time": [last + 10, last + 40]}
    scorer.observe("silences", silent | {"ranks": [2, 2]}, 0.0)
    [stalled] = scores_of(scorer.step(last + 40))
    assert (stalled.columns["state"], stalled.columns["cause"]) == ("stalled", "stopped")
    assert ": rank 1 was stopped by a signal for 100% of its time" in stalled.columns["sentence"]


@pytest.mark.parametrize(
    ("before", "peers", "words"),
    [
        (2.7e9, [], ", 2.70 GHz before"),
        (2.7e9, [2.8e9, 2.6e9, 2.5e9], ", 2.70 GHz before, other nodes at 2.60 GHz"),
        (math.nan, [2.7e9], ", other nodes at 2.70 GHz"),
    ],
)
def test_a_node_whose_cores_are_slower_than_before_or_than_its_peers_is_the_cause(before, peers, words):
    def rows(now):
        # In most of the time before no rank ran, so nothing was read.
        made = account(row(900.0, seconds=100.0), row(1000.0, seconds=60.0, clock_hz=before))
        for at in range(0, 20, 4):
            made.add(pressure(row(ONSET + at, clock_hz=now, throttles=8.0), names_others=True))
            for number, peer in enumerate(peers):
                made.add(pressure(row(ONSET + at, host=f"p{number}", clock_hz=peer), names_others=True))
        return made

    straggler = Cause(LongerWork(0.03), ("n1",))
    cause = explain(rows(1.8e9), lost=0.4, cause=straggler)
    assert (cause.kind, cause.members) == ("throttled", ("n1",))
    assert cause_words.reason(cause, "", "sync point") == f"n1 ran at 1.80 GHz{words}, throttled 40 times"
    assert cause.numbers["clock_hz"] == pytest.approx(1.8e9)
    assert explain(rows(1.8e9), lost=0.8, cause=straggler).kind == "straggler"
    assert explain(rows(2.5e9), lost=0.1, cause=straggler).kind == "straggler"


def test_what_ranks_lose_comes_before_what_clocks_tell():
    quiet = row(1000.0, seconds=60.0, clock_hz=3e9)
    during = [row(ONSET + at, clock_hz=1e9) for at in range(0, 20, 4)]
    waits = [row(ONSET + at, 1, blocked_seconds=0.3) for at in range(0, 20, 4)]
    assert explain(account(quiet, *during, *waits), lost=0.5).kind == "disk"
    assert explain(account(quiet, *during, *waits), lost=0.65).kind == "throttled"


def test_a_slower_accelerator_is_the_cause_though_its_rank_sleeps_until_it_is_done():
    before = row(1000.0, host="n2", seconds=60.0, accelerator_clock_hz=1.9e9, run_seconds=0.5)
    now = {"accelerator_clock_hz": 1.1e9, "accelerator_celsius": 92.0, "accelerator_errors": 1.0, "run_seconds": 0.4}
    during = [row(ONSET + at, host="n2", **now) for at in range(0, 20, 4)]
    cause = explain(account(before, *during), cause=Cause(LongerWork(0.03), ("n2",), growths=GROWN))
    assert (cause.kind, cause.members) == ("accelerator", ("n2",))
    words = "n2 had an accelerator at 1.10 GHz, 1.90 GHz before, 92 degrees, 5 errors"
    assert cause_words.reason(cause, "", "sync point") == words


def test_errors_of_memory_are_told_of_the_node_that_works_longer_and_are_no_cause():
    rows = [row(1000.0, host=host, seconds=60.0) for host in ("n1", "n2")]
    rows += [row(ONSET + at, host=host, memory_errors=100.0) for host in ("n1", "n2") for at in range(0, 20, 4)]
    cause = explain(account(*rows), cause=Cause(LongerWork(0.03), ("n2",)))
    assert cause_words.clause(cause) == (
        ": n2 worked 30 ms longer per sync point, the others waited, beside 500 errors of memory"
    )


def test_accelerators_that_are_slow_while_their_ranks_wait_are_no_cause():
    rows = [row(1000.0, host=host, seconds=60.0, accelerator_clock_hz=1.9e9) for host in ("n1", "n2")]
    rows += [row(ONSET, host=host, seconds=20.0, accelerator_clock_hz=0.9e9) for host in ("n1", "n2")]
    assert explain(account(*rows)).kind == "network"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"n2": {"link_errors": 40.0}}, "10 errors a second, 0 on other nodes"),
        ({"n2": {"link_rate": 100e9}}, "at 100 Gbit/s, usually 200"),
        ({"n2": {"link_errors": 3.0}}, None),
        ({"n2": {"link_rate": 190e9}}, None),
        ({"n1": {"link_errors": 10.0}, "n2": {"link_errors": 40.0}}, None),
        ({name: {"link_rate": 100e9} for name in ("n1", "n2", "n3")}, None),
    ],
)
def test_a_bad_link_is_that_of_the_node_whose_counters_show_it(bad, words):
    usual, hosts = {"link_errors": 0.0, "link_rate": 200e9}, ("n1", "n2", "n3")
    rows = [row(1000.0, host=host, seconds=60.0, **usual) for host in hosts]
    rows += [row(ONSET + at, host=host, **usual | bad.get(host, {})) for host in hosts for at in range(0, 20, 4)]
    cause = explain(account(*rows))
    assert (cause.kind, cause.members) == (("link", ("n2",)) if words else ("network", ALL))
    assert words is None or cause_words.clause(cause) == f": the link of n2: {words}"
    assert explain(account(*rows), cause=Cause(LongerWork(1.0), ("n3",))).members == ("n3",)


def flights(**ms: tuple[float, float]) -> KernelAccount:
    """Nodes, and for how many ms a megabyte is in flight, before the onset and since; 0 is unknown."""
    rows = []
    for at in np.arange(1000.0, ONSET + 20, 4.0):
        for host, (was, now) in ms.items():
            value = 1e-3 * (was if at < ONSET else now)
            rows.append(row(at, host=host, transfer_seconds=value or math.nan))
    return account(*rows)


@pytest.mark.parametrize(
    ("kind", "members", "ms"),
    [
        ("link", ("n2",), {"n1": (30, 40), "n2": (30, 360), "n3": (20, 35), "n4": (25, 25)}),
        ("network", ("all",), {"n1": (30, 300), "n2": (30, 360), "n3": (20, 35), "n4": (25, 25)}),
        ("network", ("all",), {"n1": (30, 300), "n2": (30, 360), "n3": (20, 180), "n4": (25, 25)}),
        ("link", ("n2",), {"n1": (370, 450), "n2": (380, 1700), "n3": (170, 390), "n4": (160, 60)}),
        ("network", ("all",), {"n1": (370, 450), "n2": (380, 1700), "n3": (270, 720), "n4": (160, 60)}),
        ("network", ("all",), {"n1": (30, 350), "n2": (30, 1700), "n3": (20, 400), "n4": (30, 400)}),
        ("network", ("all",), {"n1": (30, 40), "n2": (30, 85), "n3": (20, 35), "n4": (25, 25)}),
        ("network", ("all",), {"n1": (30, 40), "n2": (30, 360), "n3": (0, 35), "n4": (25, 25)}),
        ("network", ("all",), {"n1": (30, 40), "n2": (30, 360), "n3": (20, 35), "n4": (25, 0)}),
        ("network", ("all",), {"n1": (30, 300), "n2": (30, 360)}),
        ("network", ("all",), {"n2": (30, 360)}),
    ],
)
def test_a_slow_link_is_that_of_nodes_whose_data_is_in_flight_for_long(kind, members, ms):
    cause = explain(flights(**ms))
    assert (cause.kind, cause.members) == (kind, members)


def test_a_stopped_rank_is_the_cause_though_the_link_of_another_node_is_suspected():
    made = flights(n1=(60, 180), n2=(0.2, 2), n3=(0.5, 1))
    for at in np.arange(ONSET, ONSET + 20, 4.0):
        made.add(pressure(row(at, 1, "n2", stopped_seconds=0.4), names_others=True))
    cause = explain(made, cause=Cause(SlowMessages(1.0, 1.0), ("n1",)))
    assert (cause.kind, cause.members) == ("stopped", ("n2",))
    assert cause_words.reason(cause, "", "sync point").startswith(
        "rank 1 on n2 was stopped by a signal for 40% of its time"
    )


@pytest.mark.parametrize(
    ("waited", "flight", "kind", "members"),
    [(0.84, 5.0, "network", ("all",)), (0.81, 5.0, "link", ("n2",)), (0.84, 50.0, "link", ("n2",))],
)
def test_where_ranks_have_waited_more_for_cores_a_link_must_be_much_slower(waited, flight, kind, members):
    """Who is not on a core reads no messages, and data that is on its way to them is in flight for longer."""
    rows = []
    for host, ms in (("n1", 1.0), ("n2", flight), ("n3", 1.0), ("n4", 1.0)):
        rows += [row(1000.0, n, host, seconds=60.0, delay_seconds=0.81, transfer_seconds=1e-3) for n in (NODE, 1)]
        rows += [row(ONSET, n, host, seconds=20.0, delay_seconds=waited, transfer_seconds=1e-3 * ms) for n in (NODE, 1)]
    cause = explain(account(*rows), lost=0.25, cause=Cause(SlowMessages(1.0, 1.0), ("n2",)))
    assert (cause.kind, cause.members, cause.numbers.get("core_nodes")) == (kind, members, 4 if waited > 0.81 else None)


def test_a_job_has_several_nodes_though_only_one_has_written_rows():
    made = account(*disturbed(host="n2", delay_seconds=0.48))
    network = made.explain(NETWORK, ONSET, math.inf, 0.4, nodes=4)
    assert (network.kind, network.numbers["core_nodes"]) == ("network", 1)
    assert made.explain(Cause(), ONSET, math.inf, 0.4, nodes=4).members == ("n2",)


@pytest.mark.parametrize(
    ("nodes", "seconds", "kind"), [(4, 8.0, "link"), (4, 3.9, "network"), (2, 8.0, "network")], ids=str
)
def test_nodes_that_write_no_row_are_as_before(nodes, seconds, kind):
    rows = [row(1000.0, host="n2", seconds=60.0, transfer_seconds=0.03)]
    rows += [row(ONSET, host="n2", seconds=seconds, transfer_seconds=0.36)]
    rows += [row(1000.0, host="n3", seconds=30.0, transfer_seconds=0.03)]
    assert account(*rows).explain(NETWORK, ONSET, math.inf, 0.4, nodes=nodes).kind == kind
    # One that has written rows since, of which its connections are not known, may be slow as well.
    rows.append(row(ONSET, host="n1", seconds=seconds))
    assert account(*rows).explain(NETWORK, ONSET, math.inf, 0.4, nodes=nodes).kind == "network"


def test_what_flights_show_comes_before_what_times_of_messages_suggest_and_has_its_words():
    by_times = Cause(SlowMessages(1.0, 0.01), ("n1", "n2"))
    cause = explain(flights(n1=(30, 40), n2=(30, 360), n3=(20, 35), n4=(25, 25)), cause=by_times)
    assert (cause.members, cause.silent) == (("n2",), ())
    assert cause_words.clause(cause) == ": the link of n2: a megabyte was in flight for 360 ms, 30 ms before"
    assert explain(flights(n1=(30, 300), n2=(30, 360), n3=(20, 180)), cause=by_times).kind == "network"
    alike = flights(n1=(30, 40), n2=(30, 300), n3=(40, 410), n4=(25, 25))
    assert explain(alike).kind == "network"
    assert explain(alike, cause=Cause(SlowMessages(1.0, 0.01), ("n2",))).members == ("n2",)
    assert explain(alike, cause=Cause(SlowMessages(1.0, 0.01), ("n1",))).kind == "network"
    assert explain(flights(n2=(30, 360), n3=(20, 18)), cause=Cause(LongerWork(1.0), ("n3",))).members == ("n3",)
