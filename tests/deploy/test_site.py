"""The site over a real collector: its content, access control, and the texts while a daemon does not answer."""

from __future__ import annotations

import html
import http.server
import math
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from barograph.charts.axis import durations, linear, log_durations, ranks, time_axis
from barograph.cli import main as barograph
from barograph.site import server
from barograph.site.app import create
from barograph.views import words as texts
from barograph.views.collectors.log_views import LogViews
from barograph.views.log import LogView, Row, rows_of
from barograph.views.modeler import ModelerClient
from barograph.views.words import round_seconds
from barograph_agent.protocol.wire import Result
from barograph_collector.auth.http_access import VIEWERS, Access, add
from barograph_collector.client.log_reader import LogReader
from barograph_collector.server import Collector
from helpers.fleet import CLASS, HOSTILE, Fleet, put_examples
from helpers.log import DEADLINE_SECONDS, collector_on
from helpers.service import NOWHERE

BASE = "http://127.0.0.1"
AWAY = "http://127.0.0.1:1"
METRICS = dict.fromkeys(("collector", "modeler", "alerts"), f"{AWAY}/metrics")
NOW = time.time()
"""Unix seconds of all rows."""


class Clock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return NOW + self.ahead


def words(answer: httpx2.Response) -> str:
    """The text of a page without tags."""
    body = answer.text.partition("<main")[2].partition("</body>")[0]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def fill(endpoint: str) -> None:
    fleet = Fleet(endpoint, NOW)
    put_examples(fleet)
    fleet.deliver()


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with collector_on(tmp_path_factory.mktemp("site") / "log.duckdb") as running:
        fill(running.endpoint)
        yield running


@contextmanager
def served(endpoint: str, access: Access | None = None, base: str = BASE) -> Iterator[TestClient]:
    """A client of the site over this log."""
    with LogViews(endpoint, clock=Clock()) as log:
        yield TestClient(create(log, ModelerClient([AWAY], log.clock), METRICS, access), base_url=base)


@pytest.fixture(scope="module")
def site(collector: Collector) -> Iterator[TestClient]:
    with served(collector.endpoint) as client:
        yield client


def jobs(answer: httpx2.Response, table: str) -> list[str]:
    """The jobs that a table lists."""
    text = answer.text.partition(f'aria-label="{table}, a table"')[2].partition("</table>")[0]
    return re.findall(r'<th scope="row" class="job"><a href="/job/[^"]+">([^<]+)</a>', text)


def test_running_jobs_are_sorted_by_urgency(site: TestClient) -> None:
    answer = site.get("/")
    assert answer.status_code == 200
    assert re.findall(r'<use href="#shape-(\w+)"/></svg>([a-z ]+)</span> <b>(\d+)</b>', answer.text) == [
        ("slow", "slow", "1"),
        ("recovered", "recovered", "1"),
        ("healthy", "healthy", "5"),
        ("unknown", "not judged", "1"),
    ]
    shown = jobs(answer, "Running jobs")
    assert len(shown) == 8
    assert (shown[0], shown[1], shown[-1]) == ("lab/1.0.0", "lab/3.0.0", "lab/8.0.0")
    assert answer.text.count('<svg class="spark"') == 8
    assert "1.34x" in words(answer)


def test_a_filter_requires_every_word_and_counts_matches(site: TestClient) -> None:
    found = words(site.get("/", params={"filter": "BORIS healthy"}))
    assert "3 of 8 jobs match" in found
    assert "amara" not in found
    # The sentences of healthy jobs contain the word too: "slow above 1".
    assert "1 of 8 jobs match" in words(site.get("/", params={"filter": "slow"}))
    assert "No running job matches “zzz”" in words(site.get("/", params={"filter": "zzz"}))


def test_the_start_page_links_ended_jobs_newest_first(site: TestClient) -> None:
    answer = site.get("/")
    # All began at once; the last one took longest.
    assert jobs(answer, "Ended jobs") == [f"lab/{n}.0.0" for n in range(111, 99, -1)]
    page = site.get("/job/lab/111.0.0")
    assert page.status_code == 200
    assert "Ended" in words(page)


def test_jobs_are_filtered_by_user_application_state_and_time(site: TestClient) -> None:
    def found(**query: str) -> tuple[int, int]:
        answer = site.get("/", params=query)
        return len(jobs(answer, "Running jobs")), len(jobs(answer, "Ended jobs"))

    assert found(user="boris") == (4, 0)
    assert found(user="amara", app="wrf") == (0, 12)
    assert found(state="slow") == (1, 1)
    assert found(since="1h") == (8, 0)
    assert found(since="1d", filter="111") == (0, 1)
    wrong = site.get("/", params={"since": "2 weeks"})
    assert (wrong.status_code, "Since is '2 weeks', expected one of 1h, 1d" in words(wrong)) == (400, True)


def test_the_score_is_that_of_the_verdict_and_a_healthy_job_has_no_slowdown(tmp_path: Path) -> None:
    with collector_on(tmp_path / "log.duckdb") as running:
        fleet = Fleet(running.endpoint, NOW)
        slow, well = (fleet.job(f"lab/{n}.0.0", user="amara") for n in (1, 2))
        fleet.put("jobs", [slow, well])
        fleet.put("blocks", fleet.blocks(slow, 3) + fleet.blocks(well, 3))
        alarm = "slow: 2.02x its history (score 3.6)"
        healthy = "healthy: within the spread of its history (score 0.45, slow above 1)"
        fleet.put("scores", [fleet.score(slow, "slow", 2.02, sentence=alarm, score=1.9)])
        fleet.put("scores", [fleet.score(well, "healthy", 1.78, sentence=healthy, score=0.1)])
        fleet.deliver()
        with served(running.endpoint) as site:
            page, job = words(site.get("/")), words(site.get("/job/lab/2.0.0"))
    assert re.search(r"slow 3\.6 lab/1", page)
    assert re.search(r"healthy 0\.45 lab/2", page)
    assert "2.02x" in page
    assert "1.78x" not in page + job


def test_a_search_finds_a_job_by_its_number_and_lists_those_of_an_application_or_a_node(site: TestClient) -> None:
    for asked in ("lab/100.0.0", "100"):
        answer = site.get("/search", params={"q": asked}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/job/lab/100.0.0")
    assert len(jobs(site.get("/search", params={"q": "wrf"}), "Jobs")) == 12
    assert "wrf on lab, 12 runs" in words(site.get("/search", params={"q": "WR"}))
    assert jobs(site.get("/search", params={"q": "n002"}), "Jobs") == ["lab/1.0.0"]
    assert "No job, application or node of this name" in words(site.get("/search", params={"q": "x' OR '1'='1"}))
    assert 'action="/search"' in site.get("/pipeline").text


def test_a_user_with_many_jobs_and_alarms_takes_no_places_of_others(tmp_path: Path) -> None:
    with collector_on(tmp_path / "log.duckdb") as running:
        fleet = Fleet(running.endpoint, NOW)
        greedy = [fleet.job(f"lab/9{n:04}.0.0", "spam", "mallory", age=30) for n in range(2_100)]
        ended = [fleet.job(f"lab/8{n:04}.0.0", "spam", "mallory", age=90) for n in range(600)]
        own, over = fleet.job("lab/1.0.0", age=500), fleet.job("lab/2.0.0", age=500)
        fleet.put("jobs", [own, over, *greedy, *ended])
        fleet.put("runs", [fleet.run(over, 100), *(fleet.run(job, 60) for job in ended)])
        fleet.put("scores", [fleet.score(own, "slow", since=400)])
        fleet.put("scores", [fleet.score(job, "slow", score=1e6) for job in [*greedy, *ended]])
        fleet.deliver()
        with served(running.endpoint) as site:
            page, alarms = site.get("/"), words(site.get("/alarms"))
    assert "lab/1.0.0" in jobs(page, "Running jobs")
    assert "lab/2.0.0" in jobs(page, "Ended jobs")
    assert "lab/1.0.0" in alarms
    assert "mallory has 2,100 running jobs, of which 2,000 are listed" in words(page)
    assert "mallory has 600 ended jobs, of which the newest are listed" in words(page)


def test_a_job_is_drawn_over_its_band_with_its_onset_and_late_nodes(site: TestClient) -> None:
    answer = site.get("/job/lab/1.0.0")
    page = words(answer)
    for kind in ("band", "expected", "trace", "range", "onset"):
        assert re.search(rf'<svg class="chart".*class="{kind}"', answer.text, re.DOTALL), kind
    assert "1,200 intervals" in page
    assert "Of the latest intervals of earlier healthy runs 95 % took 3.95 ms to 4.58 ms" in page
    assert re.search(r"5\.2\d ms on average \(4\.[12]\d ms before the onset, 6\.[23]\d ms since\)", page)
    nodes = re.findall(r'<tr><th scope="row">(n\d+)</th>(.*?)</tr>', answer.text, re.DOTALL)
    assert nodes[0][0] == "n001"
    # Of its 12 blocks since the onset 10 have 1.9 ms more of own work; before it none has.
    cells = re.findall(r">([^<>]+)</td>", nodes[0][1])
    assert cells == ["16", "3.10 ms", "4.68 ms", "2.10 ms", "517 \N{MICRO SIGN}s"]
    assert "Expected end" in page


def test_workers_of_a_training_are_listed_those_with_most_own_work_first(
    site: TestClient, collector: Collector, tmp_path: Path
) -> None:
    page, report = words(site.get("/job/lab/2.0.0")), tmp_path / "job.html"
    assert "Waiting 3 n001 60 90.0 ms 50.0 ms 2.00 ms 10.0 ms 0 n000 60 60.0 ms 50.0 ms 2.00 ms 40.0 ms 1 n000" in page
    assert barograph(["report", "--job", "lab/2.0.0", "--output", str(report), "--collector", collector.endpoint]) == 0
    cells = re.findall(r"<tr><td>(\d)</td><td>(n\d+)</td>(.*?)</tr>", report.read_text())
    assert [rank for rank, *_ in cells] == ["3", "0", "1", "2"]
    assert re.findall(r">([\d.]+)<", cells[0][2]) == ["60", "90", "50", "2", "10"]
    assert "Workers" not in words(site.get("/job/lab/1.0.0"))


def test_the_page_of_a_slow_job_says_what_can_be_done(site: TestClient) -> None:
    assert '<a href="/slow">What now?</a>' in site.get("/job/lab/1.0.0").text
    assert "/slow" not in site.get("/job/lab/2.0.0").text
    assert "Read the verdict" in words(site.get("/slow"))


def test_the_class_of_a_job_may_be_chosen(site: TestClient) -> None:
    chosen = site.get("/job/lab/1.0.0", params={"class": CLASS})
    assert 'aria-current="true"' in chosen.text
    assert "No interval of this job is in the log yet" in words(site.get("/job/lab/1.0.0", params={"class": 7}))
    wrong = site.get("/job/lab/1.0.0", params={"class": "x' OR 1"})
    assert (wrong.status_code, 'Class is "x\' OR 1", expected a whole number' in words(wrong)) == (400, True)


def test_alarms_are_active_or_past(site: TestClient) -> None:
    page = words(site.get("/alarms"))
    now, past = page.split("Past", 1)
    assert "lab/1.0.0" in now
    assert "lab/3.0.0" in past
    assert "for a while" in past
    assert "lab/100.0.0" in past
    assert "as it was" in past


def test_an_application_shows_its_spread_and_its_past_predictions(site: TestClient) -> None:
    answer = site.get("/application", params={"cluster": "lab", "app": "wrf"})
    page = words(answer)
    # Four runs on 32 ranks: 106, 115, 124 and 133 s.
    assert "32 1 first 4 1 min 47 s 2 min 0 s 2 min 12 s +10 %" in page
    # Errors from -10 to +12 % in steps of 2: those below 10 % are inside.
    assert "Of the last 12 runs that were predicted before they ended, 75 % ended within their 95 % interval" in page
    assert answer.text.count('class="whisker"') == 3
    assert page.count("lab/wrf@32x1+a1b2c3 is 8 % slower since build 3f2a1c") == page.count("3f2a1c") == 1
    assert f"no answer from the modeler at {AWAY}" in page
    assert "The modeler has not answered since" in page


def test_content_of_the_log_is_escaped(site: TestClient) -> None:
    asked = f"/predict?app={HOSTILE}&ranks=2"
    for path in ("/", "/job/lab/1.0.0", "/alarms", f"/?filter={HOSTILE}", asked, f"/{HOSTILE}"):
        answer = site.get(path)
        assert HOSTILE not in answer.text, path
        assert html.escape(HOSTILE) in answer.text, path


def test_every_response_has_security_headers(site: TestClient) -> None:
    for path in ("/", "/nothing", "/static/page.css", "/enter"):
        headers = site.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
    page = site.get("/job/lab/1.0.0").text
    assert not re.search(r"\son\w+=|\sstyle=|<script>|javascript:", page)
    assert set(re.findall(r'(?:href|src|action)="([a-z]+:)?//', page)) == set()


def test_pages_refuse_other_methods_than_get(site: TestClient) -> None:
    for path in ("/", "/job/lab/1.0.0", "/predict"):
        for method in ("POST", "PUT", "DELETE"):
            assert site.request(method, path).status_code == 405


def test_a_foreign_host_header_is_refused_on_loopback(site: TestClient) -> None:
    assert site.get("/", headers={"host": "evil.example"}).status_code == 400
    assert site.get("/", headers={"host": "localhost:7454"}).status_code == 200


def test_missing_pages_and_invalid_addresses_are_explained(site: TestClient) -> None:
    gone = site.get("/job/lab/nobody")
    assert (gone.status_code, "There is no job lab/nobody" in words(gone)) == (404, True)
    wrong = site.get("/", params={"sort": "x"})
    assert (wrong.status_code, "Sort is 'x', expected one of score," in words(wrong)) == (400, True)
    assert site.get("/nothing").status_code == 404


def test_quotes_in_names_are_escaped_in_sql(site: TestClient) -> None:
    assert site.get("/job/x' OR '1'='1").status_code == 404
    assert site.get("/application", params={"cluster": "lab'; DROP TABLE jobs", "app": "wrf"}).status_code == 404


def test_daemons_that_do_not_answer_are_named_with_the_reason(site: TestClient) -> None:
    page = words(site.get("/pipeline"))
    for name in METRICS:
        assert re.search(rf"{name} Does not answer at {AWAY}/metrics: .*Connection refused", page)


def test_however_many_look_at_the_pipeline_a_daemon_is_scraped_once_in_a_while(collector: Collector) -> None:
    scrapes, clock = [], Clock()

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scrapes.append(self.path)
            self.send_error(503)

        def log_message(self, *_: object) -> None: ...

    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as daemon,
        LogViews(collector.endpoint, clock=clock) as log,
    ):
        threading.Thread(target=daemon.serve_forever).start()
        url = f"{BASE}:{daemon.server_port}/metrics"
        site = TestClient(create(log, ModelerClient([AWAY], clock), {"alerts": url}), base_url=BASE)
        pages = [words(site.get("/pipeline")) for _ in range(3)]
        assert "Service Unavailable" in pages[0]
        assert len(scrapes) == 1
        clock.ahead += 10
        site.get("/pipeline")
        assert len(scrapes) == 2
        daemon.shutdown()


def test_an_operator_sees_all_jobs_and_a_user_own_ones(collector: Collector, tmp_path: Path) -> None:
    who = (("operator", "ops"), ("user", "boris"))
    tokens = {name: add(tmp_path, right, name).read_text().strip() for right, name in who}
    with served(collector.endpoint, Access.read(tmp_path / VIEWERS), "http://page.example") as client:

        def get(path: str, name: str) -> httpx2.Response:
            return client.get(path, headers={"Authorization": f"Bearer {tokens[name]}"})

        refused = client.get("/")
        assert (refused.status_code, "Give the token" in words(refused), "lab/" in words(refused)) == (401, True, False)
        assert client.get("/alarms", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert "lab/1.0.0" in words(get("/", "ops"))
        own = words(get("/", "boris"))
        assert ("lab/2.0.0" in own, "lab/1.0.0" in own, "Jobs of boris are shown" in own) == (True, False, True)
        assert "lab/1.0.0" not in words(get("/alarms", "boris"))
        assert get("/job/lab/1.0.0", "boris").status_code == 404
        assert get("/job/lab/2.0.0", "boris").status_code == 200
        assert get("/application?cluster=lab&app=wrf", "boris").status_code == 404
        assert get("/application?cluster=lab&app=wrf", "ops").status_code == 200


def test_a_token_is_stored_in_a_cookie_that_scripts_cannot_read(collector: Collector, tmp_path: Path) -> None:
    token = add(tmp_path, "operator", "ops").read_text().strip()
    with served(collector.endpoint, Access.read(tmp_path / VIEWERS)) as client:
        wrong = client.post("/enter", data={"token": "wrong"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        assert client.post("/enter", content=b"token=" + b"x" * 2000).status_code == 401
        right = client.post("/enter", data={"token": token}, follow_redirects=False)
        assert right.status_code == 303
        assert "HttpOnly" in right.headers["set-cookie"]
        assert "SameSite=strict" in right.headers["set-cookie"]
        assert client.get("/").status_code == 200


def test_while_the_log_is_unavailable_the_page_shows_cached_data_with_its_time(tmp_path: Path) -> None:
    clock = Clock()
    with collector_on(tmp_path / "log.duckdb") as running:
        fill(running.endpoint)
        log = LogViews(running.endpoint, clock=clock)
        client = TestClient(create(log, ModelerClient([AWAY], clock), METRICS), base_url=BASE)
        assert "lab/1.0.0" in words(client.get("/"))
    with log:
        clock.ahead = 10.0
        page = words(client.get("/"))
        assert "lab/1.0.0" in page
        assert "The log has not answered since" in page
        assert re.search(r"Data of [^,]+, 10 s ago", page)
        never = client.get("/alarms")
        assert never.status_code == 503
        assert "No answer from the collector at" in words(never)
        assert "Traceback" not in never.text


@pytest.mark.parametrize("value", [1e300, -1e300, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("path", ["/", "/job/lab/1.0.0", "/job/lab/100.0.0", "/alarms", "/applications", "/pipeline"])
def test_a_page_is_shown_whatever_times_the_log_has(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, path: str, value: float
) -> None:
    def is_time(name: str) -> bool:
        return name == "time" or name.endswith("_at")

    def extreme(answer: Result) -> list[Row]:
        times = {name for name in rows_of(answer)[0] if is_time(name)} if answer.rows else set()
        return [row | {name: value for name in times if row[name] is not None} for row in rows_of(answer)]

    monkeypatch.setattr("barograph.views.log.rows_of", extreme)
    with served(collector.endpoint) as site:
        answer = site.get(path)
    assert answer.status_code == 200, words(answer)
    assert max(map(len, words(answer).split())) < 100


@pytest.mark.parametrize("value", [1e300, -1e300, 1e18, math.inf, -math.inf, math.nan, 0.0, 1e-300])
@pytest.mark.parametrize("name", ["age", "clock", "figure", "iso", "local", "number", "percent", "seconds", "utc"])
def test_any_number_is_text_of_a_bounded_length(name: str, value: float) -> None:
    more = (NOW,) if name == "clock" else ()
    assert len(getattr(texts, name)(value, *more)) < 40


def test_a_job_without_new_blocks_is_silent_and_its_alarm_past(collector: Collector) -> None:
    clock = Clock()
    clock.ahead = 1000.0
    with LogViews(collector.endpoint, clock=clock) as log:
        client = TestClient(create(log, ModelerClient([AWAY], clock), METRICS), base_url=BASE)
        running = client.get("/").text.partition('id="ended"')[0]
        assert set(re.findall(r'<use href="#shape-(\w+)"', running)) == {"silent"}
        assert "No alarm is active" in words(client.get("/alarms"))
        assert "silent" in words(client.get("/job/lab/1.0.0"))


def test_days_of_a_lake_that_is_away_are_named_at_the_foot(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = "days 2026-03-01 to 2026-11-17 could not be read: No files found"
    with LogViews(collector.endpoint, clock=Clock()) as log:
        query = LogReader.query
        monkeypatch.setattr(LogReader, "query", lambda *asked: msgspec.structs.replace(query(*asked), note=days))
        client = TestClient(create(log, ModelerClient([AWAY], log.clock), METRICS), base_url=BASE)
        answer = client.get("/")
    assert answer.status_code == 200
    assert f"D{days[1:]}." in words(answer)


def test_an_unreachable_collector_is_explained_without_a_traceback() -> None:
    with served(NOWHERE) as client:
        answer = client.get("/")
    assert answer.status_code == 503
    assert f"No answer from the collector at {NOWHERE}" in words(answer)


def test_many_viewers_cause_one_query(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    with LogViews(collector.endpoint, clock=Clock()) as log:
        asked: list[str] = []
        query = LogReader.query
        monkeypatch.setattr(
            LogReader, "query", lambda reader, text, *rest: asked.append(text) or query(reader, text, *rest)
        )
        client = TestClient(create(log, ModelerClient([AWAY], log.clock), METRICS), base_url=BASE)
        for filter_ in ("", "a", "am", "ama", "amara"):
            assert client.get("/", params={"filter": filter_}).status_code == 200
        assert sum("verdict AS" in text for text in asked) == 2, "one of running and one of ended jobs"


def test_a_query_that_takes_long_delays_no_other_and_runs_once(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, begun, released, slow = LogReader.query, threading.Event(), threading.Event(), []

    def waiting(reader: LogReader, text: str, *rest: Any) -> Any:
        if "42" in text:
            slow.append(text)
            begun.set()
            assert released.wait(DEADLINE_SECONDS)
        return query(reader, text, *rest)

    monkeypatch.setattr(LogReader, "query", waiting)
    view = LogView(collector.endpoint)
    with ThreadPoolExecutor() as viewers:
        waits = [viewers.submit(view.query, "SELECT 42 AS n") for _ in range(4)]
        assert begun.wait(DEADLINE_SECONDS)
        assert view.query("SELECT 1 AS n").rows == [{"n": 1}]
        assert not any(wait.done() for wait in waits)
        released.set()
        assert [wait.result().rows for wait in waits] == [[{"n": 42}]] * 4
    view.close()
    assert len(slow) == 1


def test_axes_map_low_and_high_to_their_ends_and_ticks_between() -> None:
    for scale in (
        linear(0.0, 0.0073, 282, 26, round_seconds),
        durations([0.02, 0.31, 4.0], 282, 26),
        ranks([2, 16, 128], 78, 940),
        log_durations(0.9, 4000.0, 282, 26),
        time_axis(1_795_000_000.0, 1_795_000_417.0, 78, 940),
    ):
        assert (scale(scale.low), scale(scale.high)) == (scale.start, scale.end)
        assert 3 <= len(scale.ticks) <= 10
        pixels = [scale(value) for value, _ in scale.ticks]
        assert pixels == sorted(pixels, reverse=scale.start > scale.end)
        assert all(scale.low <= value <= scale.high for value, _ in scale.ticks)


def test_connections_that_send_no_request_are_closed_and_keep_no_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    site = Starlette(routes=[Route("/", lambda request: PlainTextResponse("here"))])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(site, http=server._Protocol, limit_concurrency=8, log_level="critical", lifespan="off")
        served = uvicorn.Server(config)
        thread = threading.Thread(target=served.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            silent = [socket.create_connection(listener.getsockname(), 30.0) for _ in range(8)]
            silent[0].sendall(b"GET / HTTP/1.1\r\nHost: ")
            for one in silent:
                assert one.recv(1) == b""
                one.close()
            # A request may take its time to arrive on a busy machine.
            monkeypatch.setattr(server, "REQUEST_SECONDS", 120.0)
            at = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            with httpx2.Client() as client:
                assert [client.get(at).text for _ in range(2)] == ["here", "here"]
        finally:
            served.should_exit = True
            thread.join()


def test_a_full_disk_of_the_log_is_on_each_page(tmp_path: Path) -> None:
    with collector_on(tmp_path / "log.duckdb") as collector:
        collector.space.reserve = 2**62
        with LogViews(collector.endpoint, clock=Clock()) as log:
            client = TestClient(create(log, ModelerClient([AWAY], log.clock), METRICS, None), base_url=BASE)
            assert f"The disk of the log is full: {tmp_path} has " in client.get("/").text
