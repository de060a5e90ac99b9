"""A small facility of made-up jobs, and how agreement of groups is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from river.metrics import AdjustedRand

from barograph.cli import main
from barograph_collector.client.follow import LogWriter
from barograph_lab.studies.alerts.facility import Facility, Plan
from barograph_lab.studies.grouping import agreement
from helpers.log import collector_on

PLAN = Plan(jobs=400, applications=12, days=3.0)


def test_a_facility_is_recognised_and_its_disturbed_jobs_are_found():
    facility = Facility(PLAN, alpha=0.001)
    jobs = list(facility.run())
    assert len(jobs) == len(facility.groups) == PLAN.jobs
    found = agreement((job.work, facility.groups[job.name]) for job in jobs)
    assert found.works > 2 * PLAN.applications
    assert found.precision > 0.9
    assert found.recall > 0.9
    healthy = [job for job in jobs if not job.disturbed]
    assert [job.state for job in healthy if job.state in ("slow", "fast")] == []
    disturbed = [job for job in jobs if job.disturbed and job.earlier >= 3]
    assert disturbed
    assert {job.state for job in disturbed} == {"slow"}
    assert 1e4 < facility.state_bytes < 1e9


def test_the_same_seed_gives_the_same_jobs():
    one, other = (list(Facility(PLAN._replace(jobs=40), alpha=0.001).run()) for _ in range(2))
    assert one == other
    assert list(Facility(PLAN._replace(jobs=40, seed=2), alpha=0.001).run()) != one


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("1234")), min_size=2, max_size=40))
def test_the_index_is_that_of_others(runs: list[tuple[str, str]]):
    theirs = AdjustedRand()
    for work, group in runs:
        theirs.update(ord(work), ord(group))
    found = agreement(runs)
    # Where both partitions are trivial the index is 0 / 0: theirs is 0 or 1.
    if found.works > 1 and found.groups > 1:
        assert found.rand_index == pytest.approx(theirs.get(), abs=1e-9)
    assert 0 <= found.precision <= 1
    assert 0 <= found.recall <= 1


def test_mixed_groups_and_needless_ones_are_counted():
    found = agreement([("a", "1"), ("a", "1"), ("a", "2"), ("b", "2"), ("b", "2"), ("c", "3")])
    assert (found.runs, found.works, found.groups, found.mixed, found.needless) == (6, 3, 3, 1, 1)
    assert (found.precision, found.recall) == (2 / 4, 2 / 4)
    with pytest.raises(ValueError, match="1 runs, expected at least 2"):
        agreement([("a", "1")])


def test_the_command_prints_periods_of_a_made_up_facility(capsys: pytest.CaptureFixture[str]):
    words = ["backtest", "recognise", "--jobs=60", "--applications=4"]
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    periods = found["after"]
    assert sum(kind["groups"]["runs"] for kind in found["told_apart_by"].values()) == 60
    assert [one["groups"]["runs"] for one in periods] == [20, 40, 60]
    assert [one["days"] for one in periods] == [10.0, 20.0, 30.0]
    assert "60 of 60 jobs" in printed.err
    assert main(words) == 0
    assert "60 made-up jobs of 4 applications" in capsys.readouterr().out


def test_the_command_compares_the_groups_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "work.csv"
    with collector_on(tmp_path / "log.duckdb") as collector:
        writer = LogWriter(collector.endpoint, "test/1", None)
        for number, group in enumerate(("x", "x", "y", "y")):
            row = {
                "job": f"lab/{number}.0.0",
                "workload": group,
                "family": "x",
                "how": "first",
                "reason": "",
                "time": 0.0,
            }
            writer.put("assignments", 1, row)
        assert writer.close(30)
        words = ["backtest", "recognise", str(file), f"--collector={collector.endpoint}"]
        file.write_text("job,work\n" + "".join(f"lab/{n}.0.0,{work}\n" for n, work in enumerate("aabb")))
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rand_index"] == 1.0
        assert main(words) == 0
        assert "1.0000" in capsys.readouterr().out
        for text, words_of_error in (
            ("job\na\n", "no column work, expected job and work"),
            ("job,work\nlab/0.0.0,a\n", "1 jobs, expected at least 2"),
            ("job,work\nlab/0.0.0,a\nlab/9.0.0,b\n", "the log has no group of 1 of 2 jobs, such as lab/9.0.0"),
        ):
            file.write_text(text)
            assert main(words) == 65
            assert words_of_error in capsys.readouterr().err
