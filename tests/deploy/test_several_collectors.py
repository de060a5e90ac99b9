"""Commands and the page with several collectors: they show what they would with one that has all rows."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from barograph.cli import main
from barograph.site.app import create
from barograph.site.command import metrics
from barograph.site.settings import PageSettings
from barograph.views import refusal
from barograph.views.collectors.joint_query import STEPS, fairly, quantiles
from barograph.views.collectors.log_views import LogViews
from barograph.views.jobs import order_of
from barograph.views.log import QueryLimits
from barograph.views.modeler import ModelerClient
from barograph.views.refusal import PatientReader
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.settings.sources import ConfigError
from barograph_collector.server import Collector
from helpers.fleet import Fleet, SharedFleet, put_examples
from helpers.log import Producer, collector_on

NOW = 1_700_000_000.0
LATELY = time.time()
AWAY = "http://127.0.0.1:1"
PATIENT = QueryLimits(20_000, 10.0, 60.0)
NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a collector that is not there."""

    def reader(endpoint: str, seconds: float, key: ClientKey | None) -> PatientReader:
        return PatientReader(endpoint, 0.2 if endpoint == NOWHERE else seconds, key)

    monkeypatch.setattr(refusal, "PatientReader", reader)


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
                      "advice": "memory", "time": NOW}  # fmt: skip
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


def test_a_collector_that_takes_no_rows_is_named_and_a_canary_has_the_reason(
    pair: list[Collector], capsys: pytest.CaptureFixture[str]
) -> None:
    put(pair[0], ("lab/1.0.0", "ann", NOW))
    pair[1].space.reserve, full = 2**62, pair[1].endpoint
    assert status("--collector", f"{pair[0].endpoint},{full}", capsys=capsys) == (
        0, ["lab/1.0.0"], f"barograph status: {full}: {pair[1].space.complaint}\n",
    )  # fmt: skip
    told = status("--collector", full, "--jobs", "1", capsys=capsys)[2]
    assert told == f"barograph status: {pair[1].space.complaint}\n"
    assert main(["canary", "--collector", full, "--seconds", "0.2"]) == 69
    found = capsys.readouterr().err
    assert found.startswith(
        f"barograph canary: the collector at {full} has not acknowledged the job: the disk of the log"
    )


def test_nodes_are_those_of_all_shards_with_most_evidence_first(
    pair: list[Collector], capsys: pytest.CaptureFixture[str]
) -> None:
    put(pair[0], suspect="n7")
    put(pair[1], suspect="n8")
    assert main(["nodes", "--json", "--collector", f"{pair[0].endpoint},{pair[1].endpoint}"]) == 0
    assert [json.loads(line)["host"] for line in capsys.readouterr().out.splitlines()] == ["n7", "n8"]


def cut(rows: list[dict[str, Any]], quota: int, limit: int) -> list[dict[str, Any]]:
    """What the query of one log keeps of its rows."""
    totals, places = Counter(row["user"] for row in rows), Counter[str]()
    kept = []
    for row in sorted(rows, key=order_of):
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
    found, expected = fairly(order_of, quota, limit)(parts), cut(rows, quota, limit)
    assert [(row["job"], row["place"]) for row in found] == [(row["job"], row["place"]) for row in expected]


@pytest.fixture(scope="module")
def facility(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of a collector with all rows, and of two that have them between them."""
    folder = tmp_path_factory.mktemp("facility")
    with (
        collector_on(folder / "whole.duckdb") as whole,
        collector_on(folder / "a.duckdb") as one,
        collector_on(folder / "b.duckdb") as other,
    ):
        pair = [one.endpoint, other.endpoint]
        for fleet in (Fleet(whole.endpoint, LATELY), SharedFleet(pair, LATELY)):
            put_examples(fleet)
            jobs = [
                fleet.job(f"lab/{number}.0.0", "wrf", user="amara" if number % 2 else "boris", age=9000 - number)
                for number in range(200, 230)
            ]
            fleet.put("jobs", jobs)
            fleet.put("runs", [fleet.run(job, 100 + number) for number, job in enumerate(jobs)])
            singles = [row for job in jobs for row in fleet.blocks(job, 20)]
            fleet.put("blocks", [row | {"count": 1, "sum_seconds": row["sum_seconds"] / 20} for row in singles])
            fleet.put(
                "assignments",
                [{"job": job["job"], "workload": f"{job['workload']}+{number % 3}", "family": job["workload"],
                  "how": "same", "reason": "as before", "time": job["started_at"]} for number, job in enumerate(jobs)],
            )  # fmt: skip
            named = {"target": f"{jobs[0]['workload']}+1", "action": "name", "argument": "storm", "editor": "ann"}
            fleet.put("work_edits", [named | {"time": LATELY}])
            fleet.deliver()
        yield whole.endpoint, ",".join(pair)


@contextmanager
def site(collectors: str, limits: QueryLimits = PATIENT) -> Iterator[TestClient]:
    with LogViews(collectors, limits=limits, clock=lambda: LATELY) as log:
        urls = dict.fromkeys(("collector", "modeler", "alerts"), f"{AWAY}/metrics")
        yield TestClient(create(log, ModelerClient([AWAY], log.clock), urls), base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    "path",
    ["/", "/?user=boris", "/alarms", "/applications", "/application?cluster=lab&app=wrf", "/job/lab/1.0.0",
     "/job/lab/2.0.0", "/job/lab/100.0.0", "/job/lab/205.0.0", "/search?q=wrf", "/search?q=205", "/predict"],
)  # fmt: skip
def test_the_page_of_two_collectors_is_that_of_one_with_all_rows(facility: tuple[str, str], path: str) -> None:
    texts = []
    for collectors in facility:
        with site(collectors) as client:
            answer = client.get(path)
            assert answer.status_code == 200
            texts.append(answer.text.partition("<main")[2])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("subject", ["--app=wrf", "--job=lab/1.0.0", "--job=lab/2.0.0", "--job=lab/205.0.0"])
def test_a_report_of_two_collectors_is_that_of_one_with_all_rows(
    facility: tuple[str, str], subject: str, tmp_path: Path
) -> None:
    texts = []
    for collectors in facility:
        output = tmp_path / "report.html"
        options = [f"--collector={collectors}", f"--modeler={AWAY}", f"--output={output}"]
        assert main(["report", subject, *options]) == 0
        texts.append(output.read_text().partition("<footer>")[0])
    assert texts[0] == texts[1]


def test_a_page_with_a_collector_that_is_away_says_so_and_shows_the_jobs_of_the_others(
    facility: tuple[str, str],
) -> None:
    one = facility[1].split(",")[1]
    with site(f"{NOWHERE},{one}", QueryLimits(20_000, 10.0, 0.5)) as client:
        found = client.get("/")
        assert found.status_code == 200
        assert f"The collector at {NOWHERE} has not answered since" in found.text
        known = re.findall(r'href="/job/([^"]+)"', found.text)
        assert known
        assert client.get(f"/job/{known[0]}").status_code == 200
        unknown = client.get("/job/lab/none.0.0")
        assert (unknown.status_code, f"No answer from the collector at {NOWHERE}" in unknown.text) == (503, True)


def test_a_report_without_one_collector_names_it(
    facility: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barograph.report.command.BATCH", QueryLimits(100_000, 10.0, 0.5))
    output = tmp_path / "report.html"
    collectors = f"{NOWHERE},{facility[1].split(',')[0]}"
    code = main(["report", "--app=wrf", f"--collector={collectors}", f"--modeler={AWAY}", f"--output={output}"])
    assert (code, f"{NOWHERE} did not answer: what is there is missing" in capsys.readouterr().err) == (69, True)
    assert f"No answer from {NOWHERE}" in output.read_text()


def test_the_pipeline_has_the_metrics_of_each_shard() -> None:
    pair, modelers = "tcp://log1:7450,tcp://[::1]:7460", ["http://log1:7452", "http://[::1]:7462"]
    assert metrics(modelers, pair) == {
        "collector tcp://log1:7450": "http://log1:7451/metrics",
        "modeler tcp://log1:7450": "http://log1:7452/metrics",
        "alerts tcp://log1:7450": "http://log1:7453/metrics",
        "collector tcp://[::1]:7460": "http://[::1]:7461/metrics",
        "modeler tcp://[::1]:7460": "http://[::1]:7462/metrics",
        "alerts tcp://[::1]:7460": "http://[::1]:7463/metrics",
    }
    given = metrics(modelers, pair, "http://a:1,http://b:2")
    assert [url for name, url in given.items() if "collector" in name] == ["http://a:1/metrics", "http://b:2/metrics"]
    for name in ("collector_metrics", "modeler"):
        with pytest.raises(ConfigError, match=f"{name}: 1 addresses, expected 2, one of each collector"):
            PageSettings(collector=pair, **{name: "http://a:1"}).check()


def sql(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any, str]:
    code = main(["sql", "--json", *arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_sql_has_the_rows_of_each_collector_with_its_address(
    facility: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    whole, pair = facility
    count = "SELECT count(*) AS n FROM jobs"
    (every,) = sql("--collector", whole, count, capsys=capsys)[1]
    code, rows, _ = sql("--collector", pair, count, capsys=capsys)
    assert (code, [row["collector"] for row in rows]) == (0, pair.split(","))
    assert sum(row["n"] for row in rows) == every["n"]
    assert all(row["n"] for row in rows)
    merged = sql("--collector", pair, count, "--merge", "SELECT sum(n)::INT AS n FROM parts", capsys=capsys)
    assert merged[:2] == (0, [every])
    code, _, err = sql("--collector", pair, count, "--merge", "SELECT * FROM '/etc/passwd'", capsys=capsys)
    assert (code, "cannot join what the collectors have answered" in err) == (65, True)
    code, _, err = sql("--collector", pair, "SELECT 1 AS collector", capsys=capsys)
    assert (code, "the result has a column 'collector', expected another name" in err) == (65, True)
    code, rows, err = sql("--collector", f"{NOWHERE},{whole}", count, capsys=capsys)
    assert (code, rows) == (69, [{"collector": whole, **every}])
    assert f"no answer from the collector at {NOWHERE}" in err


def test_a_file_has_the_rows_of_all_collectors_or_is_not_written(
    facility: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, pair = facility
    query = "SELECT * FROM runs JOIN jobs USING (job) WHERE app = 'wrf'"
    found = {}
    for name, collectors in (("whole", whole), ("pair", pair)):
        output = tmp_path / f"{name}.parquet"
        assert main(["sql", query, f"--collector={collectors}", f"--output={output}"]) == 0
        found[name] = pq.read_table(output)
    assert found["whole"].column_names == found["pair"].column_names[1:]
    assert sorted(found["whole"]["job"].to_pylist()) == sorted(found["pair"]["job"].to_pylist())
    assert set(found["pair"]["collector"].to_pylist()) == set(pair.split(","))
    missing = tmp_path / "missing.parquet"
    capsys.readouterr()
    assert main(["sql", query, f"--collector={NOWHERE},{whole}", f"--output={missing}"]) == 69
    assert f"no answer from the collector at {NOWHERE}" in capsys.readouterr().err
    assert not missing.exists()


def test_work_of_two_collectors_is_that_of_one_with_all_rows(
    facility: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--json"], ["storm"], ["lab/205.0.0"]):
        texts = []
        for collectors in facility:
            assert main(["work", f"--collector={collectors}", *arguments]) == 0
            texts.append(capsys.readouterr().out)
        assert texts[0] == texts[1]
    code = main(["work", f"--collector={NOWHERE},{facility[1].split(',')[1]}", "--json"])
    assert (code, len(capsys.readouterr().out.splitlines())) == (69, 3)


@given(st.lists(st.lists(st.floats(0, 100), min_size=1, max_size=STEPS), min_size=1, max_size=3))
def test_quantiles_of_small_samples_are_those_of_all_values(parts: list[list[float]]) -> None:
    found = quantiles([(len(part), part) for part in parts], [0.05, 0.5, 0.95])
    assert found == pytest.approx(np.quantile(np.concatenate(parts), [0.05, 0.5, 0.95]), abs=1e-9)


@given(st.integers(0, 1000), st.integers(1, 20))
def test_quantiles_of_large_samples_are_within_a_step(seed: int, share: int) -> None:
    """Two collectors have very different numbers of runs."""
    rng = np.random.default_rng(seed)
    parts = [rng.lognormal(0.0, 1.0, 3000), rng.lognormal(1.0, 0.1, 3000 // share)]
    steps = np.linspace(0.0, 1.0, STEPS)
    given_ = [(part.size, np.quantile(part, steps) if part.size > STEPS else part) for part in parts]
    every = np.concatenate(parts)
    for at, found in zip([0.05, 0.5, 0.95], quantiles(given_, [0.05, 0.5, 0.95]), strict=True):
        assert np.quantile(every, at - 0.011) <= found <= np.quantile(every, at + 0.011)
