"""`barograph status` over a real collector."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator

import pytest

from barograph.cli import main
from barograph.views.log import elapsed
from barograph.views.modeler import ModelerUnavailable, ask
from barograph_collector.server import Collector
from helpers.alerting import Webhook
from helpers.fleet import Fleet
from helpers.log import collector_on, wait_until
from helpers.service import NOWHERE

NOW = time.time()


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A running job, ended ones of two users, one of them slow, and later in the log six imported runs."""
    with collector_on(tmp_path_factory.mktemp("status") / "log.duckdb") as running:
        fleet = Fleet(running.endpoint, NOW)
        alive = fleet.job("lab/10.0.0", age=100)
        over = [fleet.job(f"lab/{n}.0.0", user="boris" if n == 3 else "amara", age=1000) for n in range(1, 6)]
        imported = [fleet.job(f"lab/{n}.0.0", "wrf", age=NOW if n < 902 else 5000) for n in range(900, 906)]
        # The newest row counts. Hours: some minutes may pass until a test asks.
        newest = fleet.prediction(alive, 42_900) | {"method": "progress"}
        fleet.put("predictions", [fleet.prediction(alive, 700), newest])
        fleet.put("jobs", [alive, *over, *imported])
        fleet.put("runs", [fleet.run(job, 100 + n) for n, job in enumerate(over)])
        fleet.put("runs", [fleet.run(job, 10) | {"imported": 1} for job in imported])
        fleet.put("scores", [fleet.score(job, score=0.1, sentence="healthy: (score 0.45)") for job in over])
        fleet.put("scores", [fleet.score(over[2], "slow", 1.4, score=1.9, sentence="slow: 1.40x since x (score 3.6)")])
        fleet.deliver()
        yield running


def status(collector: Collector, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    code = main(["status", "--collector", collector.endpoint, *words])
    captured = capsys.readouterr()
    return captured.out if code == 0 else f"{code}: {captured.err}"


def listed(text: str) -> list[str]:
    return re.findall(r"lab/(\d+)\.0\.0 ", text.partition("Alarms:")[0])


def test_the_newest_job_is_last_and_imported_runs_take_no_places_of_watched_ones(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(status(collector, capsys, "--jobs", "12"))[-6:] == ["1", "2", "3", "4", "5", "10"]
    assert listed(status(collector, capsys, "--jobs", "4", "--user", "amara")) == ["2", "4", "5", "10"]


def test_a_user_has_more_than_half_of_the_lines_where_they_would_be_left(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(status(collector, capsys, "--jobs", "2")) == ["3", "10"]
    assert listed(status(collector, capsys, "--jobs", "5")) == ["2", "3", "4", "5", "10"]


def test_jobs_are_selected_by_user_application_state_and_time(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(status(collector, capsys, "--user", "boris")) == ["3"]
    assert len(listed(status(collector, capsys, "--app", "wrf"))) == 6
    assert "not judged: imported from other records, not watched" in status(collector, capsys, "900")
    assert listed(status(collector, capsys, "--state", "slow")) == ["3"]
    assert listed(status(collector, capsys, "--since", "1h", "--app", "gromacs"))[-1] == "10"


def test_a_running_job_has_what_it_has_left_and_ended_ones_have_none(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    line = next(line for line in status(collector, capsys).splitlines() if "lab/10.0.0" in line)
    assert re.search(r"running *│ *11 h \d+ min *│", line)
    left = r"^left +11 h \d+ min \(95 %: 10 h \d+ min to 1[23] h \d+ min\)$"
    assert re.search(left, status(collector, capsys, "10"), re.MULTILINE)
    ended = status(collector, capsys, "3")
    assert "left" not in ended
    assert "runtime      102.00 s" in ended
    found = json.loads(status(collector, capsys, "10", "--json"))
    assert found["expected_seconds"] == pytest.approx(42_900)


def test_alarms_of_running_and_of_ended_jobs_are_counted_apart(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    text = status(collector, capsys)
    assert "Alarms: none of running jobs, 1 of jobs that ended in the last 7 days" in text
    assert "lab/3.0.0: slow: 1.40x since x (score 3.6)" in text


def test_a_job_is_found_by_its_number_and_has_the_score_of_its_verdict(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    text = status(collector, capsys, "3")
    assert "lab/3.0.0" in text
    assert "verdict      slow: 1.40x since x (score 3.6)" in text
    row = json.loads(status(collector, capsys, "lab/3.0.0", "--json"))
    assert (row["score"], row["state"], row["user"]) == (3.6, "slow", "boris")
    assert json.loads(status(collector, capsys, "4", "--json"))["slowdown"] is None


def test_an_unknown_name_is_answered_with_similar_ones(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "65: barograph status: no application 'gromcas' is in the log; similar: gromacs\n"
    assert status(collector, capsys, "--app", "gromcas") == wrong
    assert "no user 'borys' is in the log; similar: boris" in status(collector, capsys, "--user", "borys")
    assert "no job '9055' is in the log; similar: 905" in status(collector, capsys, "9055")


def test_a_wait_for_a_collector_that_is_not_there_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sql", "--collector", NOWHERE, "--seconds", "0.01", "SELECT 1"])
    first = capsys.readouterr().err.splitlines()[0]
    assert (
        first == f"barograph: waiting for the collector at {NOWHERE}, where nothing listens; `barograph up` starts one"
    )


class Terminal(io.StringIO):
    """Text that is displayed."""

    def isatty(self) -> bool:
        return True


def test_what_takes_long_is_shown_on_a_terminal_and_not_in_a_pipe() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    with elapsed("waiting for the log", terminal, after=0.0), elapsed("waiting for the log", pipe, after=0.0):
        wait_until(lambda: "waiting for the log: 0 s" in terminal.getvalue(), "it is shown")
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert pipe.getvalue() == ""


def test_no_proxy_is_asked_for_an_address_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    webhook = Webhook()
    try:
        with pytest.raises(ModelerUnavailable, match="answers 501"):
            ask(f"http://127.0.0.1:{webhook.server.server_port}", {"app": "heat"})
    finally:
        webhook.close()
