"""`barograph status` and `barograph nodes` of several collectors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.cli import main
from barograph.views.jobs import JobQuery, _place
from barograph_collector.server import Collector
from helpers.log import Producer, collector_on

NOW = 1_700_000_000.0
NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Collector]]:
    with collector_on(tmp_path / "a.duckdb") as one, collector_on(tmp_path / "b.duckdb") as other:
        yield [one, other]


def put(collector: Collector, *jobs: tuple[str, str, float], suspect: str = "") -> None:
    """Ended jobs with a name, a user and an end, and a node that delays its jobs."""
    with Producer(collector.endpoint, "lab/x") as producer:
        producer.hello()
        for number, (name, user, ended_at) in enumerate(jobs):
            begun = {"job": name, "cluster": "lab", "workload": "lab/fft@4x1", "app": "fft", "user": user,
                     "params": "{}", "ranks": 4, "nodes": 1, "host": "n1", "started_at": ended_at - 9.0,
                     "scheduler": "none", "account": "", "unique_id": ""}  # fmt: skip
            end = {"job": name, "ended_at": ended_at, "runtime_seconds": 9.0, "exit_status": 0, "intervals": 0,
                   "dropped": 0, "imported": 0}  # fmt: skip
            producer.append(2 * number + 1, "jobs", 1, begun)
            producer.append(2 * number + 2, "runs", 1, end)
        if suspect:
            values = {"host": suspect, "jobs": 9, "blamed": 8, "score": 2.0, "excess": 0.1, "suspected": 1,
                      "check": "memory", "at": NOW}  # fmt: skip
            producer.append(2 * len(jobs) + 1, "suspects", 1, values)
        producer.receive_ack(2 * len(jobs) + bool(suspect))


def status(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    """Exit status, jobs in their order, and standard error."""
    code = main(["status", "--json", *arguments])
    out, err = capsys.readouterr()
    return code, [json.loads(line)["job"] for line in out.splitlines()], err


def test_jobs_of_all_collectors_are_in_one_order(pair: list[Collector], capsys: pytest.CaptureFixture[str]) -> None:
    put(pair[0], ("lab/1.0.0", "ann", NOW), ("lab/3.0.0", "ann", NOW + 20))
    put(pair[1], ("lab/2.0.0", "bob", NOW + 10), ("lab/4.0.0", "bob", NOW + 30))
    both = f"{pair[0].endpoint},{pair[1].endpoint}"
    every = ["lab/1.0.0", "lab/2.0.0", "lab/3.0.0", "lab/4.0.0"]
    assert status("--collector", both, capsys=capsys)[:2] == (0, every)
    assert status("--collector", both, "--jobs", "2", capsys=capsys)[:2] == (0, every[2:])
    assert status("--collector", both, "2", capsys=capsys)[:2] == (0, ["lab/2.0.0"])
    assert status("--collector", pair[1].endpoint, capsys=capsys)[:2] == (0, ["lab/2.0.0", "lab/4.0.0"])
    assert main(["status", "--collector", both]) == 0
    assert all(job in capsys.readouterr().out for job in ["lab/4.0.0"])
    code = main(["status", "--collector", both, "lab/5.0.0"])
    assert (code, "no job 'lab/5.0.0' is in the log" in capsys.readouterr().err) == (65, True)


def test_a_collector_that_does_not_answer_is_named_and_its_jobs_are_missing(
    pair: list[Collector], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barograph.commands.status.ANSWER_SECONDS", 0.2)
    put(pair[0], ("lab/1.0.0", "ann", NOW))
    code, jobs, err = status("--collector", f"{NOWHERE},{pair[0].endpoint}", capsys=capsys)
    assert (code, jobs) == (69, ["lab/1.0.0"])
    assert f"no answer from the collector at {NOWHERE}" in err
    assert "its jobs are missing here" in err
    code, jobs, err = status("--collector", f"{NOWHERE},tcp://127.0.0.1:2", capsys=capsys)
    assert (code, jobs) == (69, [])
    assert f"none of the collectors {NOWHERE},tcp://127.0.0.1:2 answers" in err


def test_nodes_are_those_that_the_first_collector_has(
    pair: list[Collector], capsys: pytest.CaptureFixture[str]
) -> None:
    put(pair[0], suspect="n7")
    assert main(["nodes", "--json", "--collector", f"{pair[0].endpoint},{pair[1].endpoint}"]) == 0
    assert json.loads(capsys.readouterr().out)["host"] == "n7"


def cut(rows: list[dict[str, Any]], quota: int, limit: int) -> list[dict[str, Any]]:
    """What the query of one log keeps of its rows."""
    totals, places = Counter(row["user"] for row in rows), Counter[str]()
    kept = []
    for row in sorted(rows, key=_place):
        places[row["user"]] += 1
        if places[row["user"]] <= quota:
            kept.append({**row, "place": places[row["user"]], "of_user": totals[row["user"]]})
    return kept[:limit]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.booleans()), max_size=40),
    st.integers(1, 8),
    st.integers(1, 20),
)
def test_the_jobs_of_several_logs_are_those_that_one_log_would_answer(
    drawn: list[tuple[str, int, bool]], quota: int, limit: int
) -> None:
    rows = [
        {"job": number, "user": user, "log": log, "imported": 0, "ended_at": None if runs else float(number),
         "started_at": float(number), "number": number}
        for number, (user, log, runs) in enumerate(drawn)
    ]  # fmt: skip
    parts = [cut([row for row in rows if row["log"] == log], quota, limit) for log in range(3)]
    found, expected = JobQuery.merged(parts, quota, limit), cut(rows, quota, limit)
    assert [(row["job"], row["place"]) for row in found] == [(row["job"], row["place"]) for row in expected]
