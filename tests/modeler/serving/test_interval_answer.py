"""Intervals at other scales, from classes whose law is known: by function, over HTTP, and as the command prints."""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from barograph.cli import main as barograph
from barograph.views.intervals import class_ids, interval_sentences, site_names
from barograph_agent.reduce import intervals
from barograph_collector.daemon.service import MetricsServer, serve_metrics
from barograph_modeler.maxima.distribution import Gev
from barograph_modeler.maxima.interval_forecast import IntervalForecast, IntervalSample, forecast_interval
from barograph_modeler.maxima.predictive import Predictive
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.trend import trend_band
from barograph_modeler.maxima.trust import judge
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.serving.page import PredictPage
from helpers.features import inline_features
from helpers.jobs import CLASSES, Simulation, verdict
from helpers.log import Producer, collector_on
from helpers.phases import node_rows
from helpers.scaling import Campaign
from helpers.works import new_modeler

SCALES = (64, 128, 256)
COUNT = 256


def lengths(
    ranks: int, rng: np.random.Generator, count: int = COUNT, *, sigma: float = 0.1, slope: float = 0.2
) -> Floats:
    """Seconds of intervals: 1 ms and lognormal noise on each of the ranks, the slowest counts, times ranks ** slope."""
    noise = np.array([rng.lognormal(0.0, sigma, ranks).max() for _ in range(count)])
    return 1e-3 * noise * ranks**slope


def sample(values: Floats) -> IntervalSample:
    """As the modeler keeps it."""
    series, fit = Predictive(window=COUNT), judge(values, seed=1)
    series.learn(values)
    return IntervalSample(series.series, series.band(), fit.pwm if fit.trusted else None)


def forecast(samples: dict[int, IntervalSample], ranks: int) -> IntervalForecast:
    found = forecast_interval(samples, ranks)
    assert found is not None
    return found


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_at_four_times_the_largest_scale_the_law_is_in_the_band_and_the_mean_is_met(sigma: float, slope: float) -> None:
    rng = np.random.default_rng(5)
    samples = {ranks: sample(lengths(ranks, rng, sigma=sigma, slope=slope)) for ranks in SCALES}
    found = forecast(samples, 1024)
    law = lengths(1024, rng, 4000, sigma=sigma, slope=slope)
    assert ((law >= found.band.lower) & (law <= found.band.upper)).mean() > 0.94
    assert found.band.method == "trend"
    assert found.band.expected == pytest.approx(np.median(law), rel=0.12)
    assert found.expected_maximum == pytest.approx(law.mean(), rel=0.08)
    # The band is not much wider than the law: each limit is away from the law's by 1.35 times the law's range at most.
    low, high = np.quantile(law, [0.025, 0.975])
    reach = 1.35 * high / low
    assert low / reach < found.band.lower < found.band.upper < high * reach


def test_the_growth_of_maxima_over_more_ranks_counts_once() -> None:
    """EMMA at four times the ranks times the trend of the medians, which has that growth in it, is 17 % too long."""
    rng = np.random.default_rng(6)
    samples = {ranks: sample(lengths(ranks, rng, sigma=0.3, slope=0.0)) for ranks in SCALES}
    law = lengths(1024, rng, 4000, sigma=0.3, slope=0.0).mean()
    assert forecast(samples, 1024).expected_maximum < 1.1 * law


def test_without_a_trusted_fit_it_is_the_mean_of_the_values_that_follows_the_trend() -> None:
    """A tenth of the intervals takes 20 times as long: the mean is 2.9 times the median."""
    rng = np.random.default_rng(7)
    samples = {}
    for ranks in SCALES:
        values = lengths(ranks, rng)
        values[rng.permutation(COUNT)[: COUNT // 10]] *= 20
        samples[ranks] = sample(values)
    assert samples[256].gev is None
    law = lengths(512, rng, 4000)
    law[:400] *= 20
    found = forecast(samples, 512)
    assert found.emma is False
    assert found.expected_maximum == pytest.approx(law.mean(), rel=0.1)
    assert found.expected_maximum > 2 * np.median(law)
    here = forecast(samples, 256)
    assert here.expected_maximum == pytest.approx(samples[256].values.mean())


def test_a_scale_that_has_run_keeps_its_band() -> None:
    rng = np.random.default_rng(8)
    samples = {ranks: sample(lengths(ranks, rng)) for ranks in SCALES}
    found = forecast(samples, 128)
    assert found.band is samples[128].band
    assert found.band.method == "tracked"
    assert found.expected_maximum == pytest.approx(lengths(128, rng, 4000).mean(), rel=0.02)
    gumbel = samples[128]._replace(gev=Gev(0.0, 2.0, 0.5))
    # By hand: mean 2 + 0.5 * 0.57722, median 2 - 0.5 log(log 2).
    assert forecast({128: gumbel}, 128).expected_maximum == pytest.approx(found.band.expected * 2.288608 / 2.183256)


def test_order_of_time_is_kept_and_narrows_the_band() -> None:
    """Sorted, a steady sample has the drift of its whole range."""
    rng = np.random.default_rng(9)
    samples = {ranks: sample(lengths(ranks, rng, 2 * COUNT, sigma=0.3)) for ranks in SCALES}
    band = forecast(samples, 512).band
    ordered = trend_band({ranks: np.sort(one.values) for ranks, one in samples.items()}, 512)
    assert ordered is not None
    assert ordered.upper / ordered.lower > 1.15 * band.upper / band.lower


def test_too_few_values_at_the_largest_scale_are_no_forecast() -> None:
    rng = np.random.default_rng(10)
    few = IntervalSample(lengths(256, rng, 38), None, None)
    assert forecast_interval({64: sample(lengths(64, rng)), 256: few}, 512) is None
    assert forecast_interval({256: few}, 256) is None


# Over HTTP


def learned(
    *scales: int,
    intervals: int | Mapping[int, int] = 2 * COUNT,
    slope: float = 0.2,
    imported: bool = False,
    sizes: Mapping[int, int] | None = None,
    per_node: int = 0,
) -> ModelerProcessor:
    """A modeler that has read one job per scale, with 3 of 4 parts of the time in the first class.

    intervals: in a run, or by ranks. slope: of lengths and runtime. sizes: the parameter n by ranks. per_node: ranks of
    each node, whose work in the first class is read too.
    """
    modeler, simulation, rng = new_modeler(), Simulation(), np.random.default_rng(3)
    for ranks in scales:
        simulation.workload, simulation.ranks = f"lab/app@{ranks}x1", ranks
        simulation.intervals = count = intervals if isinstance(intervals, int) else intervals[ranks]
        job = simulation.job()
        job["runs"]["runtime_seconds"] = [1000.0 * ranks**slope]
        if sizes is not None:
            job["jobs"]["params"] = [json.dumps({"n": str(sizes[ranks])})]
        values = np.empty(count)
        values[::2] = lengths(ranks, rng, count // 2, slope=slope)
        values[1::2] = lengths(ranks, rng, count // 2, slope=slope) / 3
        blocks = job["blocks"]
        blocks |= dict.fromkeys(("sum_seconds", "min_seconds", "max_seconds"), values)
        blocks |= {"sum_squares": values**2, "sum_cubes": values**3}
        for node in range(ranks // per_node if per_node else 0):
            own = 1e-4 * (1 + 0.1 * rng.standard_normal() + 0.05 * rng.standard_normal((100, per_node)))
            rows = node_rows(str(job["jobs"]["job"][0]), f"n{node}", own)
            modeler.observe("phases", rows | {"class_id": np.array([CLASSES[0]], np.uint64)}, simulation.now)
        for table in ("runs", "jobs", "blocks"):
            modeler.observe(table, job[table], simulation.now)
        modeler.observe("scores", verdict(job, 0.0), simulation.now)
        modeler.step(simulation.now)
    if imported:
        campaign = Campaign()
        for ranks in (1, 2, 4, 8):
            for table, columns in campaign.run(ranks).items():
                modeler.observe(table, columns, simulation.now)
    for _ in range(4):
        modeler.step(simulation.now)
    return modeler


@contextmanager
def serving(modeler: ModelerProcessor) -> Iterator[MetricsServer]:
    page = PredictPage(modeler.forecaster, inline_features(), learner=modeler.learner)
    served = serve_metrics(CollectorRegistry(), "127.0.0.1", 0, {"/predict": page})
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[MetricsServer]:
    with serving(learned(*SCALES, imported=True)) as served:
        yield served


def get(server: MetricsServer, query: str, **headers: str) -> tuple[int, dict]:
    host, port = server.address
    try:
        request = urllib.request.Request(f"http://{host}:{port}/predict?intervals=1&{query}", headers=headers)
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_larger_scale_is_answered_from_those_that_have_run(server: MetricsServer) -> None:
    status, reply = get(server, "app=app&ranks=1024", Accept="text/plain")
    assert (status, reply["refusal"], reply["cluster"], reply["app"], reply["params"], reply["ranks"]) == (
        200, None, "lab", "app", {}, 1024,
    )  # fmt: skip
    first, second = reply["intervals"]
    assert [one["class"] for one in (first, second)] == [f"{class_id:016x}" for class_id in CLASSES]
    assert (first["share"], second["share"]) == (pytest.approx(0.75, abs=0.01), pytest.approx(0.25, abs=0.01))
    law = lengths(1024, np.random.default_rng(4), 4000)
    for row, part in ((first, law), (second, law / 3)):
        assert (row["from_ranks"], row["method"]) == ([64, 128, 256], "trend")
        assert ((part >= row["lower_seconds"]) & (part <= row["upper_seconds"])).mean() > 0.94
        assert row["expected_seconds"] == pytest.approx(np.median(part), rel=0.1)
        assert row["expected_maximum_seconds"] == pytest.approx(part.mean(), rel=0.06)
    assert reply["conditions"] == ["The logarithm of the length of intervals is linear in that of the ranks."]


@pytest.mark.parametrize("scales", [(8, 16, 32, 64), (32, 64)])
@pytest.mark.parametrize("measured", [0, 512])
def test_intervals_of_work_that_is_divided_get_shorter_with_the_runtime(scales: tuple[int, ...], measured: int) -> None:
    """measured: intervals at the smaller scales; without, the runtimes alone show the trend."""
    counts = {ranks: 512 if ranks == 64 else measured or 16 for ranks in scales}
    with serving(learned(*scales, intervals=counts, slope=-1.0)) as served:
        for ranks in (128, 256, 512):
            first, second = get(served, f"app=app&ranks={ranks}")[1]["intervals"]
            law = lengths(ranks, np.random.default_rng(4), 4000, slope=-1.0)
            for row, part in ((first, law), (second, law / 3)):
                assert row["from_ranks"] == ([*scales] if measured else [64])
                assert row["lower_seconds"] < np.median(part) < row["upper_seconds"]
                # Two scales do not show where it stops falling.
                assert row["expected_seconds"] < (1.3 if ranks <= 256 else 1.5) * np.median(part)


def test_intervals_of_one_scale_follow_their_measured_work_or_nobody_knows() -> None:
    law = np.median(lengths(128, np.random.default_rng(4), 4000, slope=-1.0))
    for per_node in (8, 0):
        with serving(learned(64, slope=-1.0, per_node=per_node)) as served:
            reply = get(served, "app=app&ranks=128")[1]
        first, second = reply["intervals"]
        assert (first["prior"], second["prior"]) == ("split" if per_node else "none", "none")
        assert first["lower_seconds"] < law < first["upper_seconds"]
        assert first["expected_seconds"] < (1.2 if per_node else 1.5) * law
        assert any("it is unknown whether they get shorter" in text for text in reply["conditions"])


def test_beyond_what_was_tested_the_answer_is_wide_finite_and_has_the_distance(server: MetricsServer) -> None:
    near, far = (get(server, f"app=app&ranks={ranks}")[1] for ranks in (1024, 100_000_000))
    assert far["conditions"][1:] == ["It holds for 391,000 times the ranks, where it was tested for 4 times."]
    for one, other in zip(near["intervals"], far["intervals"], strict=True):
        assert 0 < other["lower_seconds"] < other["expected_maximum_seconds"] < other["upper_seconds"] < math.inf
        assert other["upper_seconds"] / other["lower_seconds"] > 4 * one["upper_seconds"] / one["lower_seconds"]


def test_a_scale_that_has_run_is_answered_from_its_own_band(server: MetricsServer) -> None:
    reply = get(server, "app=app&ranks=128")[1]
    law = lengths(128, np.random.default_rng(4), 4000)
    first = reply["intervals"][0]
    assert (first["from_ranks"], first["method"], reply["conditions"]) == ([128], "tracked", [])
    assert first["expected_maximum_seconds"] == pytest.approx(law.mean(), rel=0.02)
    assert 0.9 < ((law >= first["lower_seconds"]) & (law <= first["upper_seconds"])).mean() < 0.99


@pytest.mark.parametrize("ranks", [32, 96])
def test_scales_below_and_between_are_refused_with_those_that_have_run(server: MetricsServer, ranks: int) -> None:
    status, reply = get(server, f"app=app&ranks={ranks}")
    assert (status, reply["intervals"]) == (200, [])
    assert reply["refusal"] == (
        "intervals are predicted at scales that have run and at larger ones; 64, 128 and 256 ranks have run, expected"
        " one of these or more than 256"
    )


def test_what_has_no_intervals_has_one_sentence(server: MetricsServer) -> None:
    assert get(server, "app=solver&ranks=16&param.n=1")[1]["refusal"] == (
        "no intervals of solver are known, expected runs that were not imported"
    )
    assert get(server, "app=app&ranks=512&param.n=1")[1]["refusal"] == (
        "no intervals with these parameters are known, expected parameters that have been run"
    )
    assert get(server, "app=nobody&ranks=4") == (404, {"error": "no finished run of 'nobody' is known"})
    assert get(server, "app=app&ranks=4&feature.n=1") == (
        400,
        {"error": "intervals are not predicted from features, expected one of the two"},
    )
    assert get(server, "app=app&ranks=4&format=prometheus") == (
        400,
        {"error": "format is 'prometheus', expected json with intervals"},
    )


def test_a_weak_series_goes_on_without_its_size() -> None:
    with serving(learned(*SCALES, sizes={ranks: 100 * ranks for ranks in SCALES})) as served:
        reply = get(served, "app=app&ranks=1024")[1]
        named = get(served, "app=app&ranks=256&param.n=25600")[1]
    assert [row["from_ranks"] for row in reply["intervals"]] == [[64, 128, 256]] * 2
    assert reply["conditions"][-1] == "The size grows with the ranks as it did: n=102400."
    assert (named["refusal"], named["conditions"], named["others"]) == (None, [], [])


def test_the_slowest_rank_is_in_the_answer_by_node_and_rank_where_the_work_of_ranks_is_known() -> None:
    with serving(learned(64, 128, per_node=8)) as served:
        larger, fuller = (get(served, f"app=app&ranks=512{nodes}")[1]["intervals"] for nodes in ("", "&nodes=16"))
        here = get(served, "app=app&ranks=64")[1]["intervals"]
    slowest = larger[0]["slowest"]
    assert (slowest["per_node"], slowest["nodes"], larger[1]["slowest"]) == (8, 64, None)
    assert 1.03 < slowest["of_node"][1] < slowest["of_all"][0] < slowest["of_all"][2] < 2
    assert (fuller[0]["slowest"]["per_node"], here[0]["slowest"]["nodes"]) == (32, 8)
    assert fuller[0]["slowest"]["of_node"][1] > slowest["of_node"][1]


def test_of_several_sizes_there_is_a_list_to_choose_from() -> None:
    with serving(learned(64, 128, 256, sizes={64: 100, 128: 900, 256: 200})) as served:
        reply = get(served, "app=app&ranks=1024")[1]
    assert reply["refusal"] == "the runs have 3 sizes and none was asked for, expected a size: a value of n"
    assert [one["params"] for one in reply["others"]] == ["n=100", "n=900", "n=200"]
    first, *listed = interval_sentences(reply, {})
    assert first.startswith("No intervals of app on 1,024 ranks of lab: the runs have 3 sizes")
    assert listed[0] == "Parameters that have been run, for --param:"
    assert [line.partition(":")[0].strip() for line in listed[1:]] == ["n=100", "n=900", "n=200"]


def test_too_short_a_history_is_refused_with_what_a_band_needs() -> None:
    with serving(learned(64, intervals=40)) as served:
        reply = get(served, "app=app&ranks=128")[1]
    assert reply["refusal"] == "no class has 39 intervals on 64 ranks, which a band needs"


# The command


def test_the_command_prints_a_line_per_class(
    server: MetricsServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAROGRAPH_COLLECTOR", "tcp://127.0.0.1:1")  # nothing listens there
    host, port = server.address
    words = ["predict", "--intervals", "--app=app", f"--modeler=http://{host}:{port}"]
    assert barograph([*words, "--ranks=512"]) == 0
    first, second, assumed = capsys.readouterr().out.splitlines()
    time = r"\d+(\.\d+)? (µs|ms)"
    for line, share, class_id in ((first, 75, CLASSES[0]), (second, 25, CLASSES[1])):
        assert re.fullmatch(
            rf"{share} % of the time, class {class_id:016x}: {time} expected on 512 ranks, 95 of 100 intervals take"
            rf" {time} to {time}; seen on 64, 128 and 256\.",
            line,
        ), line
    assert assumed == "Assumed: the logarithm of the length of intervals is linear in that of the ranks."
    assert barograph([*words, "--ranks=32", "--json"]) == 65
    assert json.loads(capsys.readouterr().out)["intervals"] == []
    assert barograph([*words, "--ranks=32"]) == 65
    assert capsys.readouterr().out.startswith("No intervals of app on 32 ranks of lab: intervals are predicted at ")
    with pytest.raises(SystemExit, match="2"):
        barograph([*words, "--ranks=512", "--features=f.json"])
    assert capsys.readouterr().err.endswith(
        "--intervals predicts neither from --features nor with --plot, expected it without them\n"
    )
    assert barograph(["predict", "--intervals", "--app=nobody", "--ranks=4", f"--modeler=http://{host}:{port}"]) == 65
    assert capsys.readouterr().err == "barograph predict: no finished run of 'nobody' is known\n"


def test_a_class_with_call_sites_is_named_by_them(server: MetricsServer) -> None:
    reply = get(server, "app=app&ranks=128")[1]
    assert class_ids(reply) == list(CLASSES)
    first, second = interval_sentences(reply, {CLASSES[0]: "halo+0x1a to dot+0x2b (Allreduce)"})
    assert first.startswith("75 % of the time, halo+0x1a to dot+0x2b (Allreduce): ")
    assert first.endswith("; this scale has run.")
    assert f", class {CLASSES[1]:016x}: " in second


def test_call_sites_are_those_of_the_collector_that_the_class_is_of(tmp_path: Path) -> None:
    paths = {"from_site": "halo+0x1a < main+0x2", "to_site": "dot+0x2b < main+0x8"}
    number = intervals.class_id(*paths.values())
    site = {"job": "lab/1.0.0", "class_id": number, "operation": "Allreduce"}
    with collector_on(tmp_path / "log.duckdb") as running, Producer(running.endpoint) as producer:
        producer.hello()
        producer.append(1, "sites", 1, site | paths)
        producer.append(2, "sites", 1, site | {"job": "lab/2.0.0", "from_site": "forged", "to_site": "forged"})
        producer.receive_ack(2)
        found = site_names(running.endpoint, [number])
    assert found == {number: "halo+0x1a to dot+0x2b (Allreduce)"}
