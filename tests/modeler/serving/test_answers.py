"""What is answered is one prediction wherever it is read, and its numbers are numbers."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.commands.planned_fields import recorded_fields
from barograph.imports.record import RunRecord
from barograph.imports.works import WorkDigests
from barograph_agent.job.identity import Job
from barograph_collector.auth import http_access
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import PredictorLibrary, Published, publish
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.scaling.answer import OTHERS_RUNS, OWN_RUNS, from_runs
from barograph_modeler.scaling.history import MAX_SECONDS, MIN_SECONDS
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.exporter import ModelerExporter
from barograph_modeler.serving.page import PredictPage
from barograph_modeler.serving.question import BadQuestion, Question
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.scaling import Campaign

APP = Application("lab", "solver")
RANKS = st.sampled_from([1, 2, 3, 4, 8, 64, 1000, 10**6, 10**8])
SECONDS = st.one_of(st.floats(MIN_SECONDS, MAX_SECONDS), st.sampled_from([1.0, 2.0, 4.0, 8.0]))
TEXTS = st.one_of(st.sampled_from(["1", "2", "16", "1e90", "1e-90", "1e300", "0", "nan"]), st.floats().map(str))
RUNS = st.lists(st.tuples(RANKS, TEXTS, st.lists(SECONDS, min_size=1, max_size=4)), min_size=1, max_size=6)


def published(runs: list[tuple[int, str, list[float]]]) -> Published:
    known: dict[WorkloadPlace, list[float]] = {}
    for ranks, text, seconds in runs:
        known.setdefault(WorkloadPlace(f"{ranks} {text}", APP, (("n", text),), ranks, 1), []).extend(seconds)
    return publish(APP, list(known.items()), 0)


@given(RUNS, RANKS, TEXTS)
@settings(max_examples=60, deadline=None)
def test_every_number_of_an_answer_is_finite_and_its_limits_are_in_order(runs: Any, ranks: int, text: str) -> None:
    known = published(runs)
    for params in ({}, {"n": text}, {"n": runs[0][1]}):
        try:
            reply = answer(known, Question("solver", ranks, params=params, risk=1e-6))
        except BadQuestion:
            continue
        json.dumps(reply, allow_nan=False)
        if reply["refusal"] is None:
            ordered = [0.0, reply["lower_seconds"], reply["expected_seconds"], reply["upper_seconds"]]
            assert all(below <= above for below, above in pairwise(ordered)), ordered
            assert ordered[1] > 0
    assert all(math.isfinite(number) for one in known.seen for number in one[1:])


@pytest.mark.parametrize(
    "seconds", [{2: 1.0, 4: 2.0, 8: 3.0}, {64: 5.0, 128: 5.0 + math.log(2), 256: 5.0 + math.log(4)}]
)
def test_a_time_that_only_grows_is_some_time_on_one_rank(seconds: dict[int, float]) -> None:
    reply = answer(published([(ranks, "1", [one]) for ranks, one in seconds.items()]), Question("solver", 1))
    assert 0.0 < reply["lower_seconds"] <= reply["expected_seconds"] <= reply["upper_seconds"] < math.inf


@pytest.mark.parametrize("repeats", [1, 2, 3, 6])
def test_page_metric_and_the_row_that_is_scored_are_one_prediction(repeats: int) -> None:
    forecaster, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign(noise=0.05)
    learner = Learner()
    processor = ModelerProcessor(learner, forecaster, inline_features())
    for ranks in [8, 16, 32, 64] * repeats:
        for table, columns in campaign.run(ranks).items():
            processor.observe(table, columns, 0.0)
    outputs = [*processor.step(0.0), *processor.step(0.0)]
    begun = campaign.run(16)
    processor.observe("jobs", begun["jobs"], 1.0)
    outputs = [*processor.step(1.0), *processor.step(1.0)]
    (row,) = (output.columns for output in outputs if output.table == "predictions")
    (known,) = forecaster.library.published.values()
    reply = answer(known, Question("solver", 16))
    changes = SimpleNamespace(changes=lambda: ())
    exporter = ModelerExporter(learner, forecaster, inline_features(), changes)  # type: ignore[arg-type]
    family = next(one for one in exporter.collect() if one.name == "barograph_runtime_predicted_seconds")
    name = begun["jobs"]["workload"][0]
    shown = [one.value for one in family.samples if one.labels["workload"] == name]
    limits = [reply["lower_seconds"], reply["expected_seconds"], reply["upper_seconds"]]
    assert [row[f"{part}_seconds"] for part in ("lower", "expected", "upper")] == limits
    assert shown == limits
    for times, result in ((0.99, "inside"), (1.01, "outside")):
        made = campaign.run(16)
        processor.observe("jobs", made["jobs"], 2.0)
        assert any(output.table == "predictions" for output in [*processor.step(2.0), *processor.step(2.0)])
        (known,) = forecaster.library.published.values()
        reply = answer(known, Question("solver", 16))
        ended = made["runs"] | {"runtime_seconds": np.array([times * reply["upper_seconds"]])}
        processor.observe("runs", ended, 2.0)
        outputs = [*processor.step(2.0), *processor.step(2.0)]
        (outcome,) = (output.columns for output in outputs if output.table == "outcomes")
        assert (outcome["expected_seconds"], outcome["result"]) == (reply["expected_seconds"], result)


def test_of_a_number_that_never_varied_one_of_both_times_is_expected() -> None:
    found = from_runs(np.array([10.0, 10.1, 9.9, 10.05]), 4).perhaps_times(100.0, "n never varied.")
    assert found.lower_seconds < 10.0
    assert found.expected_seconds == pytest.approx(1000.0, rel=0.02)
    assert np.exp(found.logarithms.quantiles([0.3, 0.7])) == pytest.approx([10.0, 1000.0], rel=0.05)


class Imports:
    """A modeler after an import of runs, and its page for viewers with tokens."""

    def __init__(self, tmp_path: Path) -> None:
        forecaster = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0))
        self.processor = ModelerProcessor(Learner(), forecaster, inline_features())
        self.tokens = {name: keys_of(tmp_path, right, name) for right, name in (("user", "ann"), ("operator", "op"))}
        access = http_access.Access.read(tmp_path / http_access.VIEWERS)
        self.page = PredictPage(forecaster, inline_features(), access=access, recognizer=self.processor.recognizer)
        self.made = 0

    def run(self, user: str, requested: str, seconds: float) -> str:
        self.made += 1
        job = Job("lab", str(self.made), 0, "job", user, "unknown", "solver", {})
        record = RunRecord(1, job, 8, 0, seconds, 1e9, 1e9 + seconds, {"job_name": "a", "requested_time": requested})
        rows = record.rows | {"works": WorkDigests().row(record)}
        for table, row in rows.items():
            assert row is not None
            self.processor.observe(table, {name: [value] for name, value in row.items()}, 1.0)
        for _ in range(2):
            self.processor.step(1.0)
        return job.key

    def ask(self, viewer: str, **fields: Any) -> dict[str, Any]:
        status: list[str] = []
        environment = {"REQUEST_METHOD": "GET", "QUERY_STRING": urlencode(fields),
                       "HTTP_AUTHORIZATION": f"Bearer {self.tokens[viewer]}"}  # fmt: skip
        body = b"".join(self.page(environment, lambda line, headers: status.append(line)))  # type: ignore[arg-type]
        return {"status": int(status[0][:3])} | json.loads(body)


def keys_of(folder: Path, right: Any, name: str) -> str:
    return http_access.add(folder, right, name).read_text().strip()


def asked(requested: str) -> dict[str, str]:
    found = recorded_fields({"job name": "a", "requested time": requested}, "solver", "lab")
    return found | {"app": "solver", "ranks": "8"}


def test_after_an_import_a_question_is_about_the_runs_of_the_user_that_asked_for_the_same(tmp_path: Path) -> None:
    imports, jobs = Imports(tmp_path), {}
    for times in (1.0, 1.01, 0.99, 1.02):
        jobs["ann"] = imports.run("ann", "01:00:00", 100.0 * times)
        jobs["ben"] = imports.run("ben", "3600", 3000.0 * times)
        imports.run("ann", "7200", 5000.0 * times)
    for fields in (asked("3600") | {"user": "ann"}, {"like": jobs["ann"]}):
        reply = imports.ask("ann", **fields)
        assert reply["basis"]["model"] == {OWN_RUNS: 1.0}
        assert 80 < reply["lower_seconds"] < reply["expected_seconds"] < reply["upper_seconds"] < 125
        assert reply["basis"]["seconds"] == [99.0, 102.0]
    assert imports.ask("op", **asked("3600"), user="ben")["expected_seconds"] == pytest.approx(3000, rel=0.03)


def test_a_run_of_others_says_little_of_a_first_run_and_own_runs_much_beside_theirs(tmp_path: Path) -> None:
    imports = Imports(tmp_path)
    imports.run("ben", "3600", 3000.0)
    first = imports.ask("op", **asked("3600"), user="ann")
    assert (first["limit"], first["basis"]["model"]) == (None, {OTHERS_RUNS: 1.0})
    assert "None of these runs is known to be of the same work." in first["warnings"]
    for user, seconds in {"cay": 900.0, "dan": 7000.0, "ben": 3010.0, "ann": 100.0}.items():
        imports.run(user, "3600", seconds)
    for user in ("cay", "dan"):
        imports.run(user, "3600", {"cay": 905.0, "dan": 6950.0}[user])
    own = imports.ask("op", **asked("3600"), user="ann")
    assert own["basis"]["seconds"] == [100.0, 100.0]
    assert 100 < own["limit"]["seconds"] < 130


def test_a_limit_says_the_smallest_risk_that_so_many_runs_can_show(tmp_path: Path) -> None:
    imports = Imports(tmp_path)
    for count in (3, 5, 192):
        for _ in range(count):
            job = imports.run("ann", "3600", 100.0)
        limit = imports.ask("ann", like=job)["limit"]
        assert limit["risk"] == 0.01
        assert limit["supported_risk"] == pytest.approx(max(0.01, {3: 1 / 4, 5: 1 / 9}.get(count, 0)), rel=0.1)
    assert imports.ask("ann", like=job, risk=0.2)["limit"]["supported_risk"] == 0.2


def test_a_viewer_asks_about_own_jobs_only(tmp_path: Path) -> None:
    imports = Imports(tmp_path)
    theirs = [imports.run("ben", "3600", 100.0) for _ in range(4)][-1]
    refused = imports.ask("ann", like=theirs)
    assert refused == {"status": 404, "error": f"no job '{theirs}' is known, or it has no ranks"}
    assert imports.ask("ann", like="lab/9.0.job")["error"] == refused["error"].replace(theirs, "lab/9.0.job")
    assert imports.ask("ann", **asked("3600"), user="ben")["status"] == 400
    assert imports.ask("op", like=theirs)["expected_seconds"] == pytest.approx(100.0)


def test_no_limit_is_longer_than_a_request_that_runs_keep_or_much_longer_than_all_runs(tmp_path: Path) -> None:
    imports = Imports(tmp_path)
    for seconds in (100.0, 150.0, 80.0, 400.0) * 20:
        job = imports.run("ann", "600", seconds)
    limits = [imports.ask("ann", like=job, risk=0.001, requested=one)["limit"]["seconds"] for one in (200, 600, 10**6)]
    assert limits[1] == 600  # runs have kept it
    assert limits[0] > 600  # runs have exceeded it
