"""Shards: which of them the runs of a user go to, and that all rows of a run go to the same one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_agent.deliver.shards import shard_of
from barograph_agent.doctor import checks
from barograph_agent.job.identity import Job
from barograph_agent.settings.places import EndpointError, check_endpoint, check_endpoints, endpoints
from barograph_agent.sidecar import main as main_module
from barograph_agent.sidecar.main import Orphans
from barograph_agent.sidecar.plan import PLAN, RunOptions, RunPlan, begin_run, save

COLLECTORS = [f"tcp://log{number}:7450" for number in range(5)]
NOWHERE = [f"tcp://127.0.0.1:{number}" for number in (1, 2, 3)]


@given(st.permutations(COLLECTORS), st.integers(0, 10**9))
def test_every_node_has_the_same_shard_for_a_user(collectors: list[str], user: int) -> None:
    assert shard_of("lab", f"u{user}", collectors) == shard_of("lab", f"u{user}", COLLECTORS)


def test_users_are_spread_and_a_shard_more_moves_none_between_the_others() -> None:
    users = [f"u{number}" for number in range(4000)]
    four, five = ({user: shard_of("lab", user, COLLECTORS[:count]) for user in users} for count in (4, 5))
    assert all(900 < count < 1100 for count in Counter(four.values()).values())
    moved = {user: five[user] for user in users if five[user] != four[user]}
    assert set(moved.values()) == {COLLECTORS[4]}
    assert 700 < len(moved) < 900


def test_a_list_of_collectors_is_checked() -> None:
    assert check_endpoints("tcp://a:1, tcp://b:2,ipc:///run/c,d") == "tcp://a:1,tcp://b:2,ipc:///run/c,d"
    assert endpoints("ipc:///run/c,d") == ("ipc:///run/c,d",)
    for text, complaint in {
        "tcp://a:1,b:2": "collector is 'tcp://a:1,b:2', expected tcp://HOST:PORT or ipc://PATH",
        "tcp://a:1,": "collector is 'tcp://a:1,', expected tcp://HOST:PORT or ipc://PATH",
        "tcp://a:1,tcp://a:1": "collector is 'tcp://a:1,tcp://a:1', which has tcp://a:1 twice,"
        " expected each address once",
    }.items():
        with pytest.raises(EndpointError) as error:
            check_endpoints(text)
        assert str(error.value) == complaint
    with pytest.raises(EndpointError, match="expected one address in place of 2"):
        check_endpoint("tcp://a:1,tcp://b:2")


def begun(root: Path, name: str, collectors: str) -> RunPlan:
    """The plan of a run whose launcher is gone."""
    job = Job("lab", name, 0, "0", f"user{name}", "n1", "app", {})
    (root / "spools").mkdir(exist_ok=True)
    (rings := root / "rings" / name).mkdir(parents=True)
    plan = begin_run(root / "spools" / name, job, rings, RunOptions(collectors))
    save(root / "spools" / name, PLAN, msgspec.structs.replace(plan, launcher_born=0))
    return plan


def adopted(root: Path, collectors: str) -> dict[str, str]:
    """The collectors of orphans by job, when a sidecar with this list begins to deliver them."""
    found = Orphans(root / "spools", collectors)
    for watch in found.runs.values():
        watch.close()
    return {watch.plan.job.id: watch.plan.endpoint for watch in found.runs.values()}


def test_a_run_stays_with_its_collector_whatever_the_list_says_later(tmp_path: Path) -> None:
    names = list("abcdefgh")
    plans = {name: begun(tmp_path, name, ",".join(NOWHERE[:2])) for name in names}
    first = {name: plan.endpoint for name, plan in plans.items()}
    assert set(first.values()) == set(NOWHERE[:2])
    assert adopted(tmp_path, ",".join(NOWHERE)) == first
    assert adopted(tmp_path, ",".join(NOWHERE[1:])) == first, "another collector lacks what the first one has stored"
    assert set(adopted(tmp_path, NOWHERE[2]).values()) == {NOWHERE[2]}, "a single one has moved"


def test_spools_for_a_dead_collector_leave_room_for_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "MAX_ADOPTED", 4)
    for number in range(8):
        begun(tmp_path, f"a{number}", NOWHERE[0])
    begun(tmp_path, "b", NOWHERE[1])
    found = adopted(tmp_path, ",".join(NOWHERE))
    assert Counter(found.values()) == {NOWHERE[0]: 2, NOWHERE[1]: 1}


def test_sidecars_of_other_nodes_have_the_collector_of_the_launcher(tmp_path: Path) -> None:
    plan = begun(tmp_path, "7", ",".join(NOWHERE))
    spools = tmp_path / "other"
    spools.mkdir()
    run = main_module.begin_companion(tmp_path / "rings", plan, spools, "n2")
    run.close()
    assert (run.plan.endpoint, run.plan.collectors) == (plan.endpoint, ",".join(NOWHERE))


def test_the_doctor_asks_each_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "ANSWER_SECONDS", 0.05)
    found = [finding.text for finding in checks.check_collectors(",".join(NOWHERE[:2]), {})]
    assert found == [f"no answer from {endpoint} in 0.05 s" for endpoint in NOWHERE[:2]]
    (bad,) = checks.check_collectors("tcp://a:1,b", {})
    assert (bad.state, bad.text) == ("fail", "collector is 'tcp://a:1,b', expected tcp://HOST:PORT or ipc://PATH")
