"""What people say about groups, as the modeler takes it."""

from __future__ import annotations

from typing import Any

import pytest

from barograph_modeler.recognition.edits import ANSWERED_SECONDS
from helpers.works import Site, asked

FAMILY = "lab/app@2x1"


def edit(site: Site, target: str, action: str, argument: str, age: float = 0.0) -> list[dict[str, Any]]:
    """The rows of `events` that answer."""
    row = {"target": [target], "action": [action], "argument": [argument], "editor": ["ada"],
           "time": [site.simulation.now - age]}  # fmt: skip
    return [dict(output.columns) for output in site.tell(("work_edits", row)) if output.table == "events"]


def runs(site: Site, *words: str, count: int = 1, factor: float = 1.0) -> list[str]:
    """The groups of runs of one request."""
    return [site.run(asked(words), factor)[0] for _ in range(count)]


def test_groups_that_somebody_merges_are_one_history_and_what_they_differ_in_does_not_matter():
    site = Site()
    runs(site, "mesh", "1", count=3)
    [other] = set(runs(site, "mesh", "2", count=3, factor=1.3))
    assert other != FAMILY
    [answer] = edit(site, other, "merge", FAMILY)
    assert (answer["kind"], answer["detail"]) == ("work-edited", f"{other} is one with {FAMILY}")
    merged = [row for row in site.written if row["how"] == "merged"]
    assert [(row["workload"], row["reason"]) for row in merged] == [(FAMILY, "merged by ada")] * 3
    assert len(site.modeler.learner.workloads[FAMILY].runtimes) == 6
    assert list(site.modeler.learner.workloads) == [FAMILY]
    assert runs(site, "mesh", "2") + runs(site, "mesh", "3") == [FAMILY] * 2


def test_a_group_that_somebody_splits_is_several_that_begin_anew():
    site = Site()
    for seed in ("1", "2", "3", "4", "5"):
        runs(site, "mesh", seed)
    assert set(runs(site, "mesh", "5") + runs(site, "mesh", "6")) == {FAMILY}
    [answer] = edit(site, FAMILY, "split", "word 2")
    assert answer["kind"] == "work-edited"
    [one, other, again] = [runs(site, "mesh", seed)[0] for seed in ("5", "4", "5")]
    assert one == again
    assert len({one, other, FAMILY}) == 3
    assert one in answer["detail"]
    # For good: a word that was not seen before is other work too.
    assert runs(site, "mesh", "77")[0] not in (one, other, FAMILY)
    assert len(site.modeler.learner.workloads[one].runtimes) == 2


@pytest.mark.parametrize(
    ("target", "action", "argument", "words"),
    [("lab/none@2x1", "merge", FAMILY, "lab/none@2x1 is no group that the modeler knows"),
     (FAMILY, "merge", "lab/none@2x1", "lab/none@2x1 is no group that the modeler knows"),
     (FAMILY, "merge", FAMILY, "lab/app@2x1 is not another group of lab/app@2x1"),
     (FAMILY, "split", "word 7", "the runs of lab/app@2x1 do not differ in word 7")],
)  # fmt: skip
def test_what_cannot_be_done_is_answered_with_the_reason(target, action, argument, words):
    site = Site()
    runs(site, "mesh", "1", count=2)
    [answer] = edit(site, target, action, argument)
    assert (answer["kind"], answer["source"]) == ("work-edit-refused", target)
    assert answer["detail"].startswith(words)
    assert runs(site, "mesh", "1") == [FAMILY]


def test_names_change_nothing_and_edits_that_are_read_again_are_not_answered():
    site = Site()
    runs(site, "mesh", "1", count=2)
    assert edit(site, FAMILY, "name", "fine mesh") == []
    assert edit(site, "lab/none@2x1", "merge", FAMILY, age=ANSWERED_SECONDS + 1) == []
