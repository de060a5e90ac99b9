"""What is said of builds, MPIs, kernels and nodes: from runtimes before and since, on made-up runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from barograph_modeler.recognition.changes import ALPHA, FEWEST, RUNS, SETTINGS, ChangeWatch, change
from helpers.jobs import verdict
from helpers.works import Site, asked, digest

GROUP = "lab/app@2x1"


class Runs:
    """Runs of one group, one after the other."""

    def __init__(self) -> None:
        self.watch = ChangeWatch()
        self.count = 0

    def run(self, build: str, seconds: float, group: str = GROUP, **platform: str) -> list[str]:
        """What is said at its end."""
        self.count += 1
        job = f"lab/{self.count}.0.0"
        text = json.dumps(platform) if platform else ""
        self.watch.read("works", {"job": [job], "executable": [build], "platform": [text]})
        return [row.columns["detail"] for row in self.watch.end(job, group, seconds, 1.0 * self.count)]


def log_runtimes(rng: np.random.Generator, count: int, spread: float, correlation: float = 0.0) -> np.ndarray:
    noise = rng.normal(size=count)
    for i in range(1, count):
        noise[i] = correlation * noise[i - 1] + math.sqrt(1 - correlation**2) * noise[i]
    return math.log(100) + spread * noise


def test_a_slower_build_is_said_once_with_runs_and_limits():
    runs, said = Runs(), []
    rng = np.random.default_rng(1)
    for value in log_runtimes(rng, 23, 0.01):
        assert runs.run("a1b2c3d4", math.exp(value)) == []
    for value in log_runtimes(rng, 12, 0.01):
        said += runs.run("3f2a1c99", 1.08 * math.exp(value))
    [text] = said
    assert text.startswith(("8 % slower since build 3f2a1c (23 runs before, 5 since; 95 %: ", "7 % slower since"))
    [(name, found)] = runs.watch.changes()
    assert (name, found.runs_since) == (GROUP, 12)
    assert found.lower < 1.08 < found.upper


def test_a_faster_build_is_faster_and_an_equal_one_is_nothing():
    runs = Runs()
    said = [text for build, factor in (("a", 1.0), ("b", 1.0), ("c", 0.8)) for i in range(10)
            for text in runs.run(build, factor * (100 + i % 3))]  # fmt: skip
    assert len(said) == 1
    assert said[0].startswith("20 % faster since build c (10 runs before, ")


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_of_builds_that_change_nothing_few_are_ever_said_to_differ(correlation):
    rng, false, trials = np.random.default_rng(2), 0, 1000
    for _ in range(trials):
        values = log_runtimes(rng, 60, 0.03, correlation)
        before = values[:30]
        false += any(change(before, values[30 : 30 + n]) for n in range(FEWEST, 31))
    # Of correlated runs the correlation is estimated from 30, and estimates of it are too low.
    assert false <= (3 if correlation else 1) * ALPHA * trials


def test_few_runs_of_either_say_nothing():
    assert change([0.0] * (FEWEST - 1), [9.0] * FEWEST) is None
    assert change([0.0] * FEWEST, [9.0] * (FEWEST - 1)) is None
    assert change([0.0] * FEWEST, [9.0] * FEWEST) is not None


def test_unknown_builds_and_runtimes_do_not_count():
    runs = Runs()
    for build, seconds in (("", 1.0), ("a", math.nan), ("a", 0.0)):
        assert runs.run(build, seconds) == []
    assert runs.watch.end("lab/unknown.0.0", GROUP, 1.0, 0.0) == []
    assert list(runs.watch.changes()) == []
    assert not runs.watch._groups


def test_runs_of_groups_that_are_merged_are_together_and_memory_is_bounded():
    runs = Runs()
    for i in range(4):
        runs.run("a", 100 + i % 2)
        runs.run("a", 100 + i % 2, GROUP + "+a1b2c3")
    runs.watch.merge(GROUP + "+a1b2c3", GROUP)
    said = [text for i in range(6) for text in runs.run("b", 130 + i % 2)]
    assert [text.partition(" since; ")[0] for text in said] == ["30 % slower since build b (8 runs before, 5"]
    for build in range(3 * SETTINGS):
        for _ in range(2 * RUNS):
            runs.run(f"build {build}", 100.0)
    [group] = runs.watch._groups.values()
    assert (len(group.runs), {len(logs) for logs in group.runs.values()}) == (SETTINGS, {RUNS})


def several(runs: Runs, count: int, seconds: float, build: str = "a", **platform: str) -> list[str]:
    """What is said of so many runs, which differ by a per cent."""
    return [text for i in range(count) for text in runs.run(build, seconds + i % 2, **platform)]


@pytest.mark.parametrize(
    ("before", "since", "words"),
    [({"mpi": "libmpi.so.40.30.4 b0a857"}, {"mpi": "libmpi.so.40.30.4 c1b968"}, "since MPI libmpi.so.40.30.4 c1b968"),
     ({"kernel": "6.1.0-13"}, {"kernel": "6.1.0-14"}, "since kernel 6.1.0-14"),
     ({"firmware": "bios 2.1"}, {"firmware": "bios 2.2"}, "since firmware bios 2.2"),
     ({"kernel": "6.1.0-13", "mpi": "x 1"}, {"kernel": "6.1.0-14", "mpi": "x 2"}, "since MPI x 2 and kernel 6.1.0-14"),
     ({"node": "X, 8 cores"}, {"node": "Y, 8 cores"}, "on Y, 8 cores than on X, 8 cores"),
     ({"node": "X", "kernel": "1"}, {"node": "Y", "kernel": "2"}, "since kernel 2 on Y")],
    ids=["mpi", "kernel", "firmware", "two at once", "node", "node and kernel"],
)  # fmt: skip
def test_what_changed_beside_the_program_is_said(before, since, words):
    runs = Runs()
    assert several(runs, 10, 100.0, **before) == []
    [text] = several(runs, 10, 110.0, **since)
    assert text.startswith(f"10 % slower {words} (10 runs ")
    assert text.partition(";")[0].endswith((" since", " here"))
    [(_, found)] = runs.watch.changes()
    assert found.what == words


def test_a_new_build_is_compared_on_the_same_type_of_node():
    runs, said = Runs(), []
    for build in ("a", "b"):
        for node, seconds in (("X", 100.0), ("Y", 130.0)) * 10:
            said += runs.run(build, seconds * (1.1 if build == "b" else 1.0) + runs.count % 3, node=node)
    first = [text.partition(" (")[0] for text in said]
    assert first == ["30 % slower on Y than on X", "10 % slower since build b", "10 % slower since build b"]
    assert len(list(runs.watch.changes())) == 1


@pytest.mark.parametrize("platform", ["{", "[]", '{"kernel": 6}'])
def test_a_platform_that_makes_no_sense_is_passed_over(platform):
    watch = ChangeWatch()
    watch.read("works", {"job": ["lab/1.0.0"], "executable": ["a"], "platform": [platform]})
    assert watch.end("lab/1.0.0", GROUP, 1.0, 0.0) == []
    assert not watch._groups


def test_a_snapshot_keeps_what_is_known():
    runs, again = Runs(), ChangeWatch()
    for build, seconds in (("a", 100.0), ("b", 130.0)):
        for i in range(8):
            runs.run(build, seconds + i % 2)
    again.restore(runs.watch.state())
    assert list(again.changes()) == list(runs.watch.changes())
    assert list(again.changes())


def test_the_modeler_compares_builds_of_like_work():
    site, said = Site(), []
    for number in range(16):
        build = asked(["1500"], executable=digest("old" if number < 8 else "new", 16))
        job = site.begin(build, factor=1.0 if number < 8 else 1.04)
        rows = site.tell(("blocks", job["blocks"]), ("runs", job["runs"]), ("scores", verdict(job, 0.0)))
        said += [row.columns for row in rows if row.table == "events"]
    [row] = said
    assert (row["source"], row["kind"], row["rows"]) == (GROUP, "runtime-changed", 6)
    assert row["detail"].startswith(f"4 % slower since build {digest('new', 16)[:6]} (8 runs before, 6 since")
