"""`/predict`: what may be asked, what is answered and in which form, and that asking disturbs nothing."""

from __future__ import annotations

import json
import math
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from barograph.cli import main as barograph
from barograph.views.advice import sentences
from barograph.views.words import span
from barograph_collector.auth import http_access, keys
from barograph_collector.daemon.service import MetricsServer, serve_metrics
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import PredictorLibrary, Published
from barograph_modeler.forecasts.problems import ProblemSpace
from barograph_modeler.forecasts.sizes import SizeSpace
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.predictor import Prediction, Refusal
from barograph_modeler.serving.answer import MIN_GAIN, answer, round_up_limit
from barograph_modeler.serving.page import PredictPage
from barograph_modeler.serving.question import BadQuestion, Question, parse_question
from helpers.executor import Inline, Slow
from helpers.features import inline_features
from helpers.scaling import Campaign, law


def forecaster(*campaigns: Campaign, scales: tuple[int, ...] = (1, 2, 4, 8, 16)) -> Forecaster:
    """One that has learned these, at five scales each unless given."""
    made = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0))
    processor = ModelerProcessor(Learner(), made, inline_features())
    for campaign in campaigns:
        for ranks in scales:
            for table, columns in campaign.run(ranks).items():
                processor.observe(table, columns, 0.0)
        processor.step(0.0)
        processor.step(0.0)
    return made


@pytest.fixture(scope="module")
def server() -> Iterator[MetricsServer]:
    both = (Campaign(app="twice", cluster="a"), Campaign(app="twice", cluster="b"))
    pages = {"/predict": PredictPage(forecaster(Campaign(), *both), inline_features())}
    served = serve_metrics(CollectorRegistry(), "127.0.0.1", 0, pages)
    yield served
    served.stop()


def get(server: MetricsServer, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, content type, body."""
    host, port = server.address
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


# Questions

FIELDS = (
    "app, like, ranks, nodes, cluster, user, requested, risk, curve, intervals, format, param.NAME, feature.NAME,"
    " asked.COLUMN"
)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("", "app is missing, expected the name of an application, or like, a job"),
        ("app=a", "ranks is missing, expected a whole number"),
        ("app=a&ranks=0", "ranks is '0', expected a whole number from 1 to 100000000"),
        ("app=a&ranks=1e3", "ranks is '1e3', expected a whole number from 1 to 100000000"),
        ("app=a&ranks=1000000000", "ranks is '1000000000', expected a whole number from 1 to 100000000"),
        ("app=a&ranks=%D9%A3", "ranks is '٣', expected a whole number from 1 to 100000000"),
        ("app=a&ranks=4&nodes=8", "nodes is 8, expected at most the 4 ranks"),
        ("app=a&ranks=4&ranks=8", "ranks is given twice"),
        ("app=a&ranks=4&risk=0", "risk is '0', expected a probability from 0.000001 to 0.5"),
        ("app=a&ranks=4&risk=nan", "risk is 'nan', expected a probability from 0.000001 to 0.5"),
        ("app=a&ranks=4&format=xml", "format is 'xml', expected json or prometheus"),
        ("app=a&ranks=4&rank=8", f"'rank' is no field, expected one of {FIELDS}"),
        ("app=a&ranks=4&feature.=8", f"'feature.' is no field, expected one of {FIELDS}"),
        ("app=a&ranks=4&feature.n=nan", "feature.n is 'nan', expected a finite number"),
        ("app=a&ranks=4&param.%20=8", f"'param. ' is no field, expected one of {FIELDS}"),
        ("app=a&ranks=4" + "&x=1" * 600, "the query has more than 500 fields"),
    ],
)  # fmt: skip
def test_a_question_that_nobody_can_answer_is_a_400_with_a_sentence(server, query, sentence):
    with pytest.raises(BadQuestion) as caught:
        parse_question(query)
    assert str(caught.value) == sentence
    status, kind, body = get(server, f"/predict?{query}")
    assert (status, kind, json.loads(body)) == (400, "application/json", {"error": sentence})


def test_what_is_being_learned_is_a_503_and_the_command_waits_for_it(capsys):
    executor = Slow()
    made, campaign = Forecaster(PredictorLibrary(executor)), Campaign()
    processor = ModelerProcessor(Learner(), made, inline_features())
    for ranks in (1, 2, 4, 8, 16):
        for table, columns in campaign.run(ranks).items():
            processor.observe(table, columns, 0.0)
    processor.step(0.0)
    processor.step(0.0)

    refused, page = threading.Event(), PredictPage(made, inline_features())

    def overheard(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = page(request, start_response)
        refused.set()
        return body

    def learn() -> None:
        refused.wait(120)
        while executor.waiting:
            executor.finish()
            processor.step(0.0)

    served = serve_metrics(CollectorRegistry(), "127.0.0.1", 0, {"/predict": overheard})
    host, port = served.address
    status, _, body = get(served, "/predict?app=solver&ranks=4&param.n=1")
    assert (status, json.loads(body)) == (503, {"error": "solver is being learned at this moment"})
    refused.clear()
    learning = threading.Thread(target=learn)
    learning.start()
    assert barograph(["predict", "--app=solver", "--ranks=4", "--param=n=1", f"--modeler=http://{host}:{port}"]) == 0
    said = capsys.readouterr()
    assert said.err == "barograph predict: solver is being learned at this moment; waiting\n"
    assert said.out
    learning.join()
    served.stop()


def test_an_unknown_application_is_a_404_and_one_on_two_clusters_wants_the_cluster(server):
    status, _, body = get(server, "/predict?app=nobody&ranks=4")
    assert (status, json.loads(body)["error"]) == (404, "no finished run of 'nobody' is known")
    status, _, body = get(server, "/predict?app=solver&ranks=4&cluster=mars")
    assert (status, json.loads(body)["error"]) == (404, "no finished run of 'solver' on 'mars' is known")
    status, _, body = get(server, "/predict?app=twice&ranks=4&param.n=1")
    assert (status, json.loads(body)["error"]) == (
        400,
        "cluster is missing, expected one of a, b: twice has run on each",
    )
    assert get(server, "/predict?app=twice&ranks=4&param.n=1&cluster=b")[0] == 200


def test_only_get_is_answered_and_metrics_are_where_they_were(server):
    host, port = server.address
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"http://{host}:{port}/predict?app=a&ranks=1", data=b"x")
    assert get(server, "/metrics")[0] == 200


# Answers


def test_the_answer_is_the_law_it_was_learned_from_with_limit_speedup_and_what_it_rests_on(server):
    status, kind, body = get(server, "/predict?app=solver&ranks=64&param.n=1&risk=0.05&curve=1")
    said = json.loads(body)
    assert (status, kind, said["refusal"]) == (200, "application/json", None)
    assert said["expected_seconds"] == pytest.approx(law(64), rel=0.2)
    assert said["lower_seconds"] < law(64) < said["upper_seconds"]
    assert said["expected_seconds"] < said["limit"]["seconds"] < said["upper_seconds"]
    assert said["limit"]["request_seconds"] == math.ceil(said["limit"]["seconds"] / 60) * 60
    speedup = said["speedup"]
    assert speedup["base_ranks"] == 1
    assert speedup["ratio"] == pytest.approx(law(1) / law(64), rel=0.2)
    assert speedup["efficiency"] == pytest.approx(speedup["ratio"] / 64)
    assert (said["basis"]["runs"], said["basis"]["scales"], said["basis"]["largest_ranks"]) == (5, 5, 16)
    assert sum(said["basis"]["model"].values()) == pytest.approx(1.0)
    assert [64, said["lower_seconds"], said["expected_seconds"], said["upper_seconds"]] in said["curve"]
    assert [pair[0] for pair in said["observed"]] == [1, 2, 4, 8, 16]


def test_prometheus_gets_the_same_numbers_by_field_and_by_header(server):
    said = json.loads(get(server, "/predict?app=solver&ranks=64&param.n=1")[2])
    path = "/predict?app=solver&ranks=64&param.n=1"
    by_field = get(server, f"{path}&format=prometheus")
    by_header = get(server, path, Accept="text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
    assert by_field == by_header
    status, kind, body = by_field
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    found = {
        (sample.name, sample.labels.pop("probability", "")): (sample.value, sample.labels)
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    labels = {"cluster": "lab", "app": "solver", "params": "n=1", "ranks": "64", "nodes": ""}
    runtime = "barograph_runtime_predicted_seconds"
    assert found == {
        ("barograph_predict_success", ""): (1.0, labels),
        (runtime, "0.025"): (said["lower_seconds"], labels),
        (runtime, "0.5"): (said["expected_seconds"], labels),
        (runtime, "0.975"): (said["upper_seconds"], labels),
        (runtime, "0.99"): (said["limit"]["seconds"], labels),
        ("barograph_speedup_predicted_ratio", ""): (said["speedup"]["ratio"], labels),
        ("barograph_efficiency_predicted_ratio", ""): (said["speedup"]["efficiency"], labels),
    }
    assert get(server, path, Accept="application/openmetrics-text")[2].endswith("# EOF\n")


class Fixed:
    """A predictor that follows a table, and refuses whatever is not in it."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self._seconds = seconds

    def predict(
        self,
        problem: str,
        ranks: float,
        nodes: object = None,
        size: object = None,
        own: object = None,
        repeats: object = None,
    ) -> Prediction | Refusal:
        if (seconds := self._seconds.get(int(ranks))) is None:
            return Refusal("too far out")
        limits = (seconds, seconds / 2, seconds * 2)
        return Prediction(*limits, {"fixed": 1.0}, 3, 3, 4, 0, (), (), Mixture.single(np.log(seconds), 0.1, 10.0))


def asked(seconds: Mapping[int, float], ranks: int) -> dict[str, Any]:
    runs = {"lab/app": Runs.of([1, 1, 2, 4], [100.0, 104.0, 50.0, 25.0])}
    app = Application("lab", "app")
    known = Published(app, ProblemSpace(app, {"": SizeSpace()}), Fixed(seconds), runs, [], [])  # type: ignore[arg-type]
    return answer(known, Question("app", ranks))


def test_a_plan_prints_the_prediction_of_each_target(capsys):
    made, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign()
    processor = ModelerProcessor(Learner(), made, inline_features())
    for ranks in (2, 4, 6, 8):
        for _ in range(3):
            for table, columns in campaign.run(ranks, ranks).items():
                processor.observe(table, columns, 0.0)
    processor.step(0.0)
    processor.step(0.0)
    served = serve_metrics(CollectorRegistry(), "127.0.0.1", 0, {"/predict": PredictPage(made, inline_features())})
    words = ["plan", "--complexity=m", "--size=2", "--at-ranks=2", "--max-ranks=8", "--count=4", "--targets=16,100000"]
    words += ["--app=solver", "--size-param=n", f"--modeler=http://127.0.0.1:{served.address[1]}"]
    try:
        assert barograph([*words, "--json"]) == 0
        near, far = json.loads(capsys.readouterr().out)["targets"]
        assert barograph(words) == 0
    finally:
        served.stop()
    assert near["prediction"]["expected_seconds"] == pytest.approx(law(16, 16), rel=0.15)
    assert "at 8 ranks at most" in far["prediction"]["refusal"]
    printed = capsys.readouterr().out
    assert re.search(r"^16 ranks, size 16: .* predicted; 95 of 100 runs take .* to .*\.$", printed, re.MULTILINE)
    assert "no prediction: " in printed


def test_a_plan_without_targets_predicts_nothing(capsys):
    with pytest.raises(SystemExit, match="2"):
        barograph(["plan", "--complexity=n", "--size=1", "--max-ranks=8", "--app=solver"])
    assert "--app predicts targets and there are none, expected --targets" in capsys.readouterr().err


def test_more_ranks_pay_until_twice_as_many_are_less_than_a_quarter_faster():
    """By hand: 100/51 and 51/40 are 1.96 and 1.275, 40/33 is 1.21: below 1.25, so from 4 ranks on they do not pay."""
    said = asked({1: 100.0, 2: 51.0, 4: 40.0, 8: 33.0, 16: 20.0}, 8)
    assert said["pays"] == {"until_ranks": 4, "ends": "rule", "from_ranks": 1, "gain": MIN_GAIN}
    assert said["speedup"] == {"base_ranks": 1, "base_seconds": 100.0, "ratio": 100 / 33, "efficiency": 100 / 33 / 8}
    certain = asked({1: 100.0, 2: 51.0, 4: 30.0}, 2)["pays"]
    assert certain == {"until_ranks": 4, "ends": "refusal", "from_ranks": 1, "gain": MIN_GAIN}


def test_ranks_per_node_choose_the_runs_where_runtimes_follow_them():
    made, app = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Application("lab", "solver")
    for ranks, nodes, seconds in ((16, 1, 20.0), (32, 2, 10.4), (16, 4, 15.0), (32, 8, 8.0)):
        place = WorkloadPlace(f"{ranks}x{nodes}", app, (), ranks, nodes)
        for factor in (0.99, 1.0, 1.01):
            made.history.learn(place, factor * seconds)
    made.library.mark_changed([app])
    for _ in range(3):
        made.step(0.0)
    known = made.library.published[app]

    def said(ranks: int, nodes: int | None, **params: str) -> tuple[float, str]:
        found = answer(known, Question("solver", ranks, nodes, params=params))
        return found["expected_seconds"], " ".join(found["conditions"])

    assert said(16, 1)[0] == pytest.approx(20.0, rel=0.001)
    assert said(16, 4)[0] == said(16, None, ranks_per_node="4")[0] == pytest.approx(15.0, rel=0.001)
    few, text = said(64, None)
    assert few == said(64, 16)[0] < 0.9 * said(64, 4)[0]
    assert "Each node has 4 ranks, as in the newest of such runs" in text
    assert "Each node" not in said(64, 16)[1]


def test_where_no_doubling_can_be_predicted_nothing_is_claimed_of_more_ranks():
    assert asked({1: 100.0}, 1)["pays"] is None


def test_a_size_never_run_is_predicted_and_without_one_the_sizes_that_were_are_listed():
    made, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign()
    processor = ModelerProcessor(Learner(), made, inline_features())
    for n in (1, 2, 4):
        for ranks in (2, 4, 8, 16):
            for table, columns in campaign.run(ranks, n).items():
                processor.observe(table, columns, 0.0)
    processor.step(0.0)
    processor.step(0.0)
    known = made.library.published[Application("lab", "solver")]
    said = answer(known, Question("solver", 64, params={"n": "8"}, curve=True))
    assert said["expected_seconds"] == pytest.approx(law(64, 8), rel=0.25)
    assert said["lower_seconds"] < law(64, 8) < said["upper_seconds"]
    assert "This size was never run" in " ".join(said["conditions"])
    assert [one["params"] for one in said["others"]] == ["n=1", "n=2", "n=4"]
    vague = answer(known, Question("solver", 64))
    assert vague["refusal"] == "the runs have 3 sizes and none was asked for, expected a size: a value of n"
    assert [one["params"] for one in vague["others"]] == ["n=1", "n=2", "n=4"]
    run = answer(known, Question("solver", 16, params={"n": "4"}))
    assert run["expected_seconds"] == pytest.approx(law(16, 4), rel=0.05)


def test_along_a_weak_series_no_size_need_be_given():
    made, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign()
    processor = ModelerProcessor(Learner(), made, inline_features())
    for ranks in (2, 4, 8, 16):
        for table, columns in campaign.run(ranks, ranks).items():
            processor.observe(table, columns, 0.0)
    processor.step(0.0)
    processor.step(0.0)
    said = answer(made.library.published[Application("lab", "solver")], Question("solver", 32, curve=True))
    assert said["expected_seconds"] == pytest.approx(law(32, 32), rel=0.15)
    assert "The size grows with the ranks as it did: n=32." in said["conditions"]
    assert said["speedup"] is said["pays"] is None
    assert [point[0] for point in said["observed"]] == [2, 4, 8, 16]
    # What that size takes on 2 ranks, a weak series does not show: nothing is concluded from it.
    known = made.library.published[Application("lab", "solver")]
    said = answer(known, Question("solver", 32, params={"n": "32"}))
    assert said["expected_seconds"] == pytest.approx(law(32, 32), rel=0.15)
    assert said["speedup"] is said["pays"] is None


def test_a_number_of_a_name_that_no_run_has_had_is_refused_with_those_that_have_run():
    made, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign()
    processor = ModelerProcessor(Learner(), made, inline_features())
    for ranks in (2, 4, 8):
        for table, columns in campaign.run(ranks, ranks).items():
            processor.observe(table, columns, 0.0)
    processor.step(0.0)
    processor.step(0.0)
    said = answer(made.library.published[Application("lab", "solver")], Question("solver", 32, params={"N": "32"}))
    assert said["refusal"] == "no run has had a parameter N, expected n"
    assert [one["params"] for one in said["others"]] == ["n=2", "n=4", "n=8"]


def test_a_refusal_is_an_answer_and_says_why():
    said = asked({1: 100.0}, 64)
    assert said["refusal"] == "too far out"
    assert "expected_seconds" not in said


def test_limits_are_rounded_up_to_what_people_ask_for():
    assert [round_up_limit(seconds) for seconds in (0.2, 60.0, 3600.0, 3600.1, 21_600.0, 21_600.1, 90_000.0)] == [
        60, 60, 3600, 3900, 21_600, 22_500, 90_000,
    ]  # fmt: skip


def test_questions_are_answered_while_predictors_are_replaced():
    """Readers have no lock: what is published is never changed, only replaced."""
    made, campaign = forecaster(Campaign()), Campaign(seed=3)
    processor = ModelerProcessor(Learner(), made, inline_features())
    page, over, failures = PredictPage(made, inline_features()), threading.Event(), []

    def ask() -> None:
        environment = {"REQUEST_METHOD": "GET", "QUERY_STRING": "app=solver&ranks=64&param.n=1&curve=1"}
        while not over.is_set():
            status: list[str] = []
            body = b"".join(page(environment, lambda line, _, status=status: status.append(line)))  # type: ignore[misc]
            if status != ["200 OK"] or json.loads(body)["refusal"] is not None:
                failures.append(status)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(5):
        for table, columns in campaign.run(2**number).items():
            processor.observe(table, columns, 0.0)
        processor.step(0.0)
        processor.step(0.0)
    over.set()
    for thread in threads:
        thread.join()
    assert failures == []


# Who may ask


def test_with_a_list_of_viewers_only_their_tokens_are_answered_and_metrics_stay_open(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys")
    token = http_access.add(tmp_path / "keys", "user", "ada").read_text().strip()
    viewers = http_access.Access.read(tmp_path / "keys" / http_access.VIEWERS)
    served = serve_metrics(
        CollectorRegistry(),
        "127.0.0.1",
        0,
        {"/predict": PredictPage(forecaster(Campaign()), inline_features(), access=viewers)},
    )
    asked = "/predict?app=solver&ranks=8"
    try:
        for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Basic {token}"}):
            status, kind, body = get(served, asked, **headers)
            assert (status, kind) == (401, "application/json")
            assert json.loads(body) == {"error": "no valid token, expected the header Authorization: Bearer TOKEN"}
        assert get(served, asked, Authorization=f"Bearer {token}")[0] == 200
        assert get(served, "/metrics")[0] == 200
        host, port = served.address
        words = ["--app=solver", "--ranks=8", "--param=n=1", "--json", f"--modeler=http://{host}:{port}"]
        assert barograph(["predict", *words, f"--token={tmp_path / 'keys/ada.token'}"]) == 0
        assert barograph(["predict", *words]) == 2
        http_access.revoke(tmp_path / "keys", "ada")
        viewers.poll()
        assert get(served, asked, Authorization=f"Bearer {token}")[0] == 401
    finally:
        served.stop()


def test_the_only_scale_that_was_run_is_answered_from_its_runs():
    known = forecaster(Campaign(), scales=(4, 4)).library.published[Application("lab", "solver")]
    params = {"n": "1"}
    reply = answer(known, Question("solver", 4, params=params, curve=True))
    assert reply["refusal"] is None
    assert reply["expected_seconds"] == pytest.approx(law(4), rel=0.05)
    assert reply["lower_seconds"] < law(4) < reply["upper_seconds"] < reply["limit"]["seconds"]
    assert reply["basis"]["model"] == {"runs at this scale": 1.0}
    assert (reply["basis"]["runs"], reply["basis"]["scales"], reply["pays"]) == (2, 1, None)
    shortest, longest = reply["basis"]["seconds"]
    assert 0.9 * law(4) < shortest < longest < 1.1 * law(4)
    assert f"This rests on 2 runs on as many ranks, which took {span(shortest)} to {span(longest)}." in sentences(reply)
    assert "was seen at 4 ranks only" in answer(known, Question("solver", 8, params=params))["refusal"]
