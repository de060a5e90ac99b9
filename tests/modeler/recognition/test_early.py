"""New jobs have their groups while older rows are still read, and the same ones when these have been read."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from barograph_agent.protocol.wire import Result
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import LogUnavailable, RowBatch
from barograph_modeler.recognition.early import LATEST_JOBS, MIN_BEHIND, PAUSE_SECONDS, EarlyReader, EarlyRecognizer
from barograph_modeler.recognition.recognizer import WAIT_SECONDS
from helpers.answers import answered, arrow
from helpers.works import Site, asked, new_modeler

NOW = 1e6


def told(early: EarlyRecognizer) -> list[tuple[str, str, str]]:
    """What it has written since the last call: job, group, and how that was found."""
    outputs, early.outputs = early.outputs, []
    return [(row["job"], row["workload"], row["how"]) for row in (output.columns for output in outputs)]


class Log:
    """Rows of a site in the order in which its modeler read them, and of what that has written."""

    def __init__(self, site: Site) -> None:
        self.rows: list[tuple[str, dict[str, list[Any]]]] = []
        tell = site.tell

        def noted(*rows: tuple[str, dict[str, Any]]) -> None:
            self.rows += rows
            tell(*rows)

        site.tell = noted  # type: ignore[method-assign]
        self._site = site

    def assignments(self) -> dict[str, list[Any]]:
        names = ("job", "workload", "family", "how", "reason", "time")
        return {name: [row[name] for row in self._site.written] for name in names}

    def early(self) -> EarlyRecognizer:
        """One that has read all jobs."""
        early = EarlyRecognizer()
        early.read("assignments", self.assignments(), NOW)
        for table, columns in self.rows:
            if table in ("work_edits", "jobs", "works"):
                early.read(table, columns, NOW)
        early.step(NOW)
        return early


def begin(early: EarlyRecognizer, number: int, row: dict[str, Any], user: str = "u") -> str:
    """A job begins of which the modeler has not read yet."""
    job = f"new/{number}.0.0"
    early.read("jobs", new_row(job, user), NOW)
    early.read("works", {"job": [job]} | {name: [value] for name, value in row.items()}, NOW)
    early.step(NOW)
    return job


def new_row(job: str, user: str) -> dict[str, Any]:
    row = {"job": job, "cluster": "lab", "workload": "lab/app@2x1", "app": "app", "user": user, "params": "{}",
           "ranks": 2, "nodes": 1, "host": "n1", "started_at": NOW, "log_offset": 10**6}  # fmt: skip
    return {name: [value] for name, value in row.items()}


def test_what_was_asked_for_before_has_its_group_at_once_and_new_work_is_left_to_the_modeler() -> None:
    site = Site()
    log = Log(site)
    small, large, other = asked(["1500"]), asked(["2400"]), asked(["9999"])
    group, _ = site.run(small)
    larger, _ = site.run(large, factor=3.0)
    early = log.early()
    assert told(early) == []
    same = begin(early, 1, large)
    assert told(early) == [(same, larger, "same")]
    for number in (2, 3):
        begin(early, number, other)
    assert told(early) == [], "the name that it would give to new work is its own"
    again = begin(early, 4, small)
    assert told(early) == [(again, group, "same")]
    begin(early, 5, small, user="somebody else")
    assert told(early) == [], "histories are those of a user"


def test_new_work_is_not_that_of_a_group_whose_jobs_are_older_than_those_it_begins_with() -> None:
    site = Site()
    log = Log(site)
    group, _ = site.run(asked(["1500"]))
    early = EarlyRecognizer()
    early.read("assignments", log.assignments(), NOW)
    for number in (1, 2):
        begin(early, number, asked(["9999"]))
    assert told(early) == [], f"the second is the same as the first, whose group is not {group} of the log"


def test_what_is_known_not_to_matter_does_not_here_either() -> None:
    site = Site()
    log = Log(site)
    for seed in range(5):
        site.run(asked(["1500", f"--seed={seed}"]))
    early = log.early()
    job = begin(early, 1, asked(["1500", "--seed=77"]))
    assert told(early) == [(job, "lab/app@2x1", "like")]


def test_the_modeler_repeats_what_was_assigned_early_and_both_write_each_job_once() -> None:
    site = Site()
    log = Log(site)
    row = asked(["1500"])
    site.run(row)
    modeler = new_modeler()
    modeler.early = log.early()
    modeler.recognizer.read("assignments", log.assignments(), NOW)
    job = begin(modeler.early, 1, row)

    def written(now: float = NOW) -> list[str]:
        outputs = [output for output in modeler.step(now) if output.table == "assignments"]
        return [output.columns["job"] for output in outputs]

    assert written() == [job]
    assert not modeler.idle
    for table, columns in log.rows:
        modeler.observe(table, columns, NOW)
        assert written() == []
    modeler.observe("jobs", new_row(job, "u"), NOW)
    assert written(NOW + WAIT_SECONDS + 1) == []
    # One that the modeler has come to first.
    second = "new/2.0.0"
    works = {"job": [second]} | {name: [value] for name, value in row.items()}
    for table, columns in (("jobs", new_row(second, "u")), ("works", works)):
        modeler.observe(table, columns, NOW)
    assert written() == [second]
    assert modeler.early is not None
    assert begin(modeler.early, 2, row) == second
    assert written() == []


def test_what_people_have_split_and_what_only_traffic_tells_is_left_to_the_modeler() -> None:
    site = Site()
    log = Log(site)
    row = asked(["1500"])
    group, _ = site.run(row)
    early = log.early()
    edit = {"target": group, "action": "split", "argument": "word 1", "editor": "ada", "time": NOW}
    early.read("work_edits", {name: [value] for name, value in edit.items()}, NOW)
    begin(early, 1, row)
    assert told(early) == []
    # Another run that asked for the same was found to do other work.
    moved = {"job": "lab/77.0.0", "workload": f"{group}+b", "family": group, "how": "first", "reason": "", "time": NOW}
    early = log.early()
    early.read("assignments", {name: [value] for name, value in moved.items()}, NOW)
    early.read("jobs", new_row("lab/77.0.0", "u"), NOW)
    early.read("works", {"job": ["lab/77.0.0"]} | {name: [value] for name, value in row.items()}, NOW)
    early.step(NOW)
    begin(early, 78, row)
    assert told(early) == []


class Remote:
    """A collector whose log has jobs, as a reader."""

    def __init__(self, jobs: int, newest: int) -> None:
        self.offsets = {"jobs": np.arange(1, jobs + 1), "blocks": np.array([newest])}
        self.asked: list[tuple[str, int]] = []
        self.is_away, self.is_closed = False, True

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True

    def read(self, table: str, after: int, limit: int) -> RowBatch:
        self.asked.append((table, after))
        found = self.offsets[table][after:][:limit]
        return RowBatch({}, len(found), int(found[-1]) if len(found) else 0)

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> Result:
        """No job is without a group."""
        return answered(text, {})

    def follow(self, offsets: dict[str, int], limit: int, seconds: float) -> tuple[int, dict[str, Any]]:
        self.is_closed = False
        if self.is_away:
            raise LogUnavailable("away")
        return int(self.offsets["blocks"][-1]), {}


class FullRemote(Remote):
    """The same with rows, of which those of one job are new."""

    def __init__(self, rows: list[tuple[str, dict[str, Any]]], new: dict[str, dict[str, Any]]) -> None:
        super().__init__(1, 10 * MIN_BEHIND)
        self._tables: dict[str, list[dict[str, Any]]] = {}
        for offset, (table, columns) in enumerate(rows, 1):
            row = {name: values[0] for name, values in columns.items()}
            self._tables.setdefault(table, []).append({**row, "log_offset": offset})
        self.offsets["jobs"] = np.array([1])
        self.new, self.fails = new, False
        self.rows = 0
        """Sent for queries, but where only offsets are asked for."""

    def follow(self, offsets: dict[str, int], limit: int, seconds: float) -> tuple[int, dict[str, Any]]:
        found, self.new = self.new, {}
        return 11 * MIN_BEHIND, found

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> Result:
        if self.fails and "earlier" in text:
            raise LogUnavailable("away")
        found = answered(text, {table: arrow(table, rows) for table, rows in self._tables.items() if table in text})
        self.rows += found.rows * (" AS bytes " not in text)
        return found


@pytest.mark.parametrize("fails", [False, True])
def test_earlier_jobs_of_the_work_of_a_new_one_are_read(fails: bool) -> None:
    site = Site()
    log, row = Log(site), asked(["1500"])
    for factor, words in ((1.0, row), (3.0, asked(["2400"]))):
        site.run(words, factor=factor)
    rows = [(table, columns) for table, columns in log.rows if table in ("jobs", "works")]
    rows += [("assignments", {name: [value] for name, value in one.items()}) for one in site.written]
    group = site.written[0]["workload"]
    new = {"jobs": new_row("new/1.0.0", "u"), "works": {"job": ["new/1.0.0"]} | {n: [one] for n, one in row.items()}}
    for columns in new.values():
        columns["log_offset"] = np.array([11 * MIN_BEHIND])
    remote = FullRemote(rows, new)
    remote.fails = fails
    early = EarlyRecognizer()
    reader = EarlyReader(early, lambda: remote, lambda: 0.0)  # type: ignore[arg-type,return-value]
    assert reader.begin(followed(0))
    reader.poll(NOW)
    assert told(early) == ([] if fails else [("new/1.0.0", group, "same")])


def test_what_is_read_does_not_grow_with_the_jobs_of_the_log() -> None:
    rows = []
    for jobs in (20, 200):
        site = Site()
        log = Log(site)
        site.run(asked(["1500"]))
        known = [(table, columns) for table, columns in log.rows if table in ("jobs", "works")]
        known += [("assignments", {name: [value] for name, value in one.items()}) for one in site.written]
        rest = [
            (table, columns | {"job": [f"other/{number}"]} | ({} if table == "works" else {"workload": [f"w{number}"]}))
            for number in range(jobs)
            for table, columns in known
        ]
        job = {"jobs": new_row("new/1.0.0", "u")}
        job["jobs"]["log_offset"] = np.array([11 * MIN_BEHIND])
        remote = FullRemote(known + rest, job)
        connect = cast(Any, lambda remote=remote: remote)
        reader = EarlyReader(EarlyRecognizer(), connect, lambda: 0.0)
        assert reader.begin(followed(0))
        reader.poll(NOW)
        rows.append(remote.rows)
    assert rows == [4, 4], "one of where to begin, and those of the earlier job of this work"


def followed(read_to: int) -> Follower:
    """A follower of the modeler that has read up to an offset."""
    follower = Follower(None, ["work_edits", "jobs", "works", "blocks"])  # type: ignore[arg-type]
    follower.resume(dict.fromkeys(follower.offsets, read_to))
    return follower


def test_it_is_for_logs_of_which_much_is_to_be_read_and_until_that_is_done() -> None:
    clock = [0.0]
    remote = Remote(3 * LATEST_JOBS, 10 * MIN_BEHIND)
    reader = EarlyReader(EarlyRecognizer(), lambda: remote, lambda: clock[0])  # type: ignore[arg-type,return-value]
    assert not reader.begin(followed(9 * MIN_BEHIND + 1))
    behind = followed(0)
    assert reader.begin(behind)
    assert ("jobs", -LATEST_JOBS) in remote.asked
    assert reader.poll(NOW)
    remote.is_away = True
    clock[0] += PAUSE_SECONDS
    assert reader.poll(NOW), "its log is away"
    remote.is_away = False
    behind.resume(dict.fromkeys(behind.offsets, 10 * MIN_BEHIND))
    assert reader.poll(NOW), "it pauses"
    clock[0] += PAUSE_SECONDS
    assert not reader.poll(NOW)
    assert remote.is_closed
