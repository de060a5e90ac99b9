"""`barograph work`: on rows that a real modeler has recognised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barograph_collector.client.follow import LogWriter
from helpers.jobs import Simulation
from helpers.log import wait_until
from helpers.up import Up
from helpers.works import asked, digest

FAMILY = "lab/app@2x1"
PLAIN = ["2400", "o'clock"]


def put(writer: LogWriter, up: Up, simulation: Simulation, number: int, row: dict[str, Any] | None) -> str:
    """A run without intervals; its name."""
    job = simulation.job()
    name = job["jobs"]["job"][0]
    whole = {"scheduler": "none", "account": "", "unique_id": ""}
    writer.put("jobs", 1, {key: value[0] for key, value in job["jobs"].items() if key != "log_offset"} | whole)
    if row is not None:
        writer.put("works", 1, {"job": name, **row})
    wait_until(lambda: writer.pump() or writer.idle, "it is stored")
    up.wait_for_rows("assignments", number)
    end = {key: value[0] for key, value in job["runs"].items()} | {
        "ended_at": simulation.now,
        "dropped": 0,
        "imported": 1,
    }
    writer.put("runs", 1, end)
    wait_until(lambda: writer.pump() or writer.idle, "it is stored")
    up.wait_for_metric("modeler", rf"barograph_modeler_runs_total {number}\.0")
    return name


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service with three runs of one request, one of another with plain words, and one of which nothing is known."""
    simulation = Simulation(intervals=2)
    with Up(tmp_path_factory.mktemp("work")) as up:
        writer = LogWriter(up.endpoint, "test/1", None)
        names = [put(writer, up, simulation, number, asked(["1500"], [(0, "mesh")])) for number in (1, 2, 3)]
        row = asked(PLAIN, program="wave", plain=json.dumps(PLAIN), reason="input 1: unreadable: Permission denied")
        names.append(put(writer, up, simulation, 4, row))
        names.append(put(writer, up, simulation, 5, asked([], executable="", reason="process: it has ended")))
        writer.close(10)
        up.names = names  # type: ignore[attr-defined]
        yield up


def test_groups_are_listed_newest_first_with_what_distinguishes_them(service):
    done = service.run("work", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["runs"], row["family"]) for row in found] == [(1, FAMILY), (1, FAMILY), (3, FAMILY)]
    assert [row["workload"].removeprefix(FAMILY)[:1] for row in found] == ["+", "+", ""]
    assert [(row["judged"], row["healthy"]) for row in found] == [(0, 0)] * 3
    assert all(row["started_at"] < 2_000_000 for row in found)
    assert "earlier runs of" not in found[-1]["reason"]
    table = service.run("work").stdout
    assert "2400 o'clock" in table
    assert "nothing is known of what was asked for: process: it has ended" in " ".join(table.split())
    assert service.run("work", "--app=other").stdout.startswith("No work is known yet")


def test_a_job_says_where_it_is_and_why_and_what_it_was_asked_for(service):
    shown = service.run("work", service.names[3]).stdout
    assert "first: the first run of this work; first run of this work; differs from lab/app@2x1 in " in shown
    assert f"word 1 {digest('2400')} (2400)" in shown
    assert "missing: input 1: unreadable: Permission denied" in shown
    same = service.run("work", service.names[2]).stdout
    assert "same: asked for the same as earlier runs; asks for the same as earlier runs of lab/app@2x1" in same
    assert f"input 1 {digest('mesh', 16)}, 4 bytes" in same


def test_a_group_has_its_runs(service):
    shown = service.run("work", FAMILY).stdout
    assert all(name in shown for name in service.names[:3])
    assert service.names[3] not in shown


def test_an_unknown_name_is_an_error_that_names_similar_ones(service):
    done = service.run("work", "lab/ap@2x1")
    assert (done.returncode, done.stdout) == (65, "")
    assert "'lab/ap@2x1' is no job and no group of the log; similar: lab/app@2x1" in done.stderr
    assert "--app and --json are for the list" in service.run("work", FAMILY, "--json").stderr


def test_a_group_can_be_named_merged_and_split(service):
    names, groups = (
        service.names,
        [json.loads(line)["workload"] for line in service.run("work", "--json").stdout.splitlines()],
    )
    assert service.run("work", FAMILY, "--call=fine mesh").stdout == f"{FAMILY} is fine mesh\n"
    assert "fine mesh" in service.run("work").stdout
    assert all(name in service.run("work", "fine mesh").stdout for name in names[:3])
    wave = next(group for group in groups if group.endswith(("unknown", FAMILY)) is False)
    done = service.run("work", wave, "--merge=fine mesh")
    assert (done.returncode, " ".join(done.stdout.split())) == (0, f"{wave} is one with {FAMILY}"), done.stderr
    assert "merged by " in service.run("work", names[3]).stdout
    again = service.run("work", wave, "--merge=fine mesh")
    assert (again.returncode, again.stdout) == (65, "")
    assert f"{wave} is no group that the modeler knows: it was merged" in again.stderr
    done = service.run("work", names[3], "--split")
    assert done.returncode == 65
    assert (
        "differs from runs of its group in: input 1, program, word 1, word 2; say which matter by --by" in done.stderr
    )
    done = service.run("work", names[3], "--split", "--by=word 2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{FAMILY} is split: {FAMILY}+")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [(["--call=a"], 2, "expected NAME, a group or with --split a job"),
     ([FAMILY, "--by=word 1"], 2, "--by: expected with --split"),
     ([FAMILY, "--call=a\tb"], 2, "expected at most 60 printable characters"),
     ([FAMILY, "--split"], 65, "is no job of the log, expected one that is to be split off"),
     (["lab/none@2x1", "--merge=x"], 65, "'lab/none@2x1' is no job and no group of the log"),
     ([FAMILY, "--call=a", "--split"], 2, "not allowed with")],
)  # fmt: skip
def test_what_makes_no_sense_is_an_error_that_names_it(service, arguments, status, words):
    done = service.run("work", *arguments)
    assert done.returncode == status
    assert words in " ".join(done.stderr.split())
