"""The dashboards: every panel has data from a live service."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.alerting import running, tool
from helpers.grafana import Board, Prometheus, QueryError, columns
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.stage import stage
from helpers.up import Up, free_ports

REPOSITORY = Path(__file__).parents[2]
DIRECTORY = REPOSITORY / "deploy/grafana/dashboards"
DASHBOARDS = ("facility", "job", "application")
CONFIGURATION = REPOSITORY / "deploy/prometheus/prometheus.yml"
RULES = REPOSITORY / "alerts/rules"
GIVEN = {"facility": {}, "job": {"job": "lab/20.0.0"}, "application": {}}
"""What the reader chooses, where it is not the first choice."""

every_dashboard = pytest.mark.parametrize("name", DASHBOARDS)


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text())
    return found


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in document(name)["panels"] if panel["type"] != "row"]


def test_links_refer_to_existing_dashboards_and_variables() -> None:
    known = {document(name)["uid"]: document(name) for name in DASHBOARDS}
    rules = (RULES / "barograph.rules.yml").read_text()
    links = [link for name in DASHBOARDS for link in re.findall(r"/d/[^\"]+", json.dumps(document(name)))]
    links += re.findall(r"/d/\S+", rules)
    for link in links:
        path, _, query = link.partition("?")
        target = known[path.removeprefix("/d/")]
        names = {f"var-{variable['name']}" for variable in target["templating"]["list"]}
        assert {part.partition("=")[0] for part in query.split("&") if part} <= names, link


@pytest.mark.integration
@pytest.mark.parametrize(
    "command",
    [
        ["promtool", "check", "config", CONFIGURATION],
        ["promtool", "check", "rules", RULES / "barograph.rules.yml"],
        ["amtool", "check-config", RULES / "alertmanager.example.yml"],
    ],
    ids=lambda command: command[0] + " " + command[2 if len(command) > 3 else 1],
)
def test_prometheus_and_alertmanager_take_the_configuration_as_it_is(command: list[str | Path]) -> None:
    done = subprocess.run([tool(str(command[0])), *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with the configuration as shipped, but hurried, that scrapes a played service."""
    program, directory, port = tool("prometheus"), tmp_path_factory.mktemp("dashboards"), free_ports(1)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("BAROGRAPH_ALERTS_LABELS", "user")
        yield from scraped(program, directory, port)


def scraped(program: str, directory: Path, port: int) -> Iterator[str]:
    """A service with the user in its metrics, played to and scraped; yields the address of its Prometheus."""
    with Up(directory) as up:
        configuration = CONFIGURATION.read_text().replace("15s", "1s").replace("../../alerts/rules", str(RULES))
        for number in (1, 2, 3):
            configuration = configuration.replace(f"127.0.0.1:{7450 + number}", f"127.0.0.1:{up.port + number}")
        (directory / "prometheus.yml").write_text(configuration)
        command = [
            program,
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        url = f"http://127.0.0.1:{port}"
        with running(directory / "prometheus.log", f"{url}/-/ready", *command), stage(up):
            watch_a_real_run(up)
            yield url


def watch_a_real_run(up: Up) -> None:
    """An MPI program on two ranks, under the shim."""
    program = [sys.executable, "-m", "barograph", "bsp", "--workload", "fwq", "--intervals", "1000"]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    done = up.run("run", "--app", "bsp", "--", str(mpiexec), "-n", "2", *program)
    assert done.returncode == 0, done.stderr


def waits_for_none(wrong: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while found := wrong():
        assert time.monotonic() < deadline, found
        time.sleep(1)


def board(name: str, url: str) -> Board:
    return Board(document(name), Prometheus(url), GIVEN[name])


def empty_panels(shown: Board) -> dict[str, str]:
    """Panels with a query that has no number in it, and that query as it was asked."""
    return {
        panel["title"]: shown.filled(target["expr"])
        for panel in shown.panels
        for target, answer in shown.ask(panel)
        if all(math.isnan(value) for one in answer for value in one.values)
    }


def misfits(shown: Board) -> list[str]:
    """Panels of which something would not be shown: series without name, columns without cell, numbers too many."""
    found = []
    for panel in shown.panels:
        answers = list(shown.ask(panel))
        if panel["type"] == "stat":
            fits = [len(answer) for _, answer in answers] == [1]
        elif panel["type"] == "timeseries":
            fits = all(
                set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= one.labels.keys()
                for target, answer in answers
                for one in answer
            ) and all(len(answer) == 1 or "{{" in target["legendFormat"] for target, answer in answers)
        else:
            rows = shown.table(panel)
            fits = all(any(row.get(title) not in {None, ""} for row in rows) for title in columns(panel).values())
            if panel["type"] == "xychart":
                fits = fits and all(float(row["Ranks"]) >= 1 for row in rows)
        if not fits:
            found.append(f"{panel['title']}: {answers}")
    return found


def unknown_names(expr: str, prometheus: Prometheus) -> set[str]:
    """Metrics and labels in a query that no series has."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
    known = {metric: prometheus.labels(metric) for metric in re.findall(r"\bbarograph_\w+", bare)}
    unknown = {metric for metric, labels in known.items() if not labels}
    for metric, matchers in re.findall(r"\b(barograph_\w+)\{([^}]*)\}", bare):
        unknown |= {f"{metric}: {label}" for label in set(re.findall(r"\w+", matchers)) - known[metric]}
    grouped = re.findall(r"\b(?:by|on|without|ignoring|group_left|group_right) *\(([^)]*)\)", bare)
    made = re.findall(r'label_replace\(.*?, "(\w+)", "\$1"', expr)
    return unknown | set(re.findall(r"\w+", " ".join(grouped))).difference(made, *known.values())


@pytest.mark.integration
@pytest.mark.timeout(600)
@every_dashboard
def test_every_query_of_every_panel_has_an_answer(name: str, prometheus: str) -> None:
    waits_for_none(lambda: empty_panels(board(name, prometheus)))


@pytest.mark.integration
@pytest.mark.timeout(600)
@every_dashboard
def test_every_answer_has_what_its_panel_shows(name: str, prometheus: str) -> None:
    waits_for_none(lambda: misfits(board(name, prometheus)))


@pytest.mark.integration
@pytest.mark.timeout(600)
@every_dashboard
def test_every_query_names_only_metrics_and_labels_that_exist(name: str, prometheus: str) -> None:
    shown, known = board(name, prometheus), Prometheus(prometheus, 600)
    queries = [target["expr"] for panel in shown.panels for target in panel["targets"]]
    queries += [one["query"] for one in document(name)["templating"]["list"] if one["type"] == "query"]
    queries = [query for query in map(shown.filled, queries) if "__name__" not in query]
    assert queries
    assert {query: names for query in queries if (names := unknown_names(query, known))} == {}


@pytest.mark.integration
@pytest.mark.timeout(600)
@every_dashboard
def test_every_variable_has_a_choice_and_none_is_left_in_a_query(name: str, prometheus: str) -> None:
    def without_choice() -> list[str]:
        shown = board(name, prometheus)
        variables = [one for one in document(name)["templating"]["list"] if one["type"] == "query"]
        return [one["name"] for one in variables if not any(shown.values(one))]

    waits_for_none(without_choice)
    shown = board(name, prometheus)
    queries = [shown.filled(target["expr"]) for panel in shown.panels for target in panel["targets"]]
    assert [query for query in queries if re.search(r"\$[{a-z_]", query)] == []


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_an_empty_panel_and_a_wrong_query_are_noticed(prometheus: str) -> None:
    broken = document("facility")
    first, second = [panel for panel in broken["panels"] if panel["type"] == "stat"][:2]
    broken["panels"] = [first, second]
    first["targets"][0]["expr"] = "barograph_no_such_metric"
    wait_until(
        lambda: list(empty_panels(Board(broken, Prometheus(prometheus), {}))) == [first["title"]],
        "only the first is empty",
    )
    second["targets"][0]["expr"] = "sum(("
    with pytest.raises(QueryError, match="parse error"):
        empty_panels(Board(broken, Prometheus(prometheus), {}))


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_wrong_names_and_answers_that_do_not_fit_are_noticed(prometheus: str) -> None:
    known = Prometheus(prometheus, 600)
    query = 'sum by (state, stat) (barograph_job_info{jobb="1"}) + barograph_no_such_metric'
    assert unknown_names(query, known) == {"barograph_job_info: jobb", "stat", "barograph_no_such_metric"}
    broken = document("facility")
    [heartbeats] = [panel for panel in broken["panels"] if panel["title"] == "Heartbeats"]
    [alarms] = [panel for panel in broken["panels"] if panel["title"] == "Alarms now"]
    [missing] = [panel for panel in broken["panels"] if panel["title"] == "Missing daemons"]
    broken["panels"] = [heartbeats, alarms, missing]
    heartbeats["targets"][0]["legendFormat"] = "{{demon}}"
    alarms["targets"][0]["expr"] = alarms["targets"][0]["expr"].replace(", sentence", "")
    missing["targets"][0]["expr"] = "barograph_heartbeat_timestamp_seconds"
    found = misfits(Board(broken, Prometheus(prometheus), {}))
    assert [one.partition(":")[0] for one in found] == ["Heartbeats", "Alarms now", "Missing daemons"]


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_program_that_was_really_watched_can_be_chosen_on_the_dashboard_of_applications(prometheus: str) -> None:
    [variable] = [one for one in document("application")["templating"]["list"] if one["name"] == "application"]

    def offered() -> bool:
        shown = Board(document("application"), Prometheus(prometheus, 600), {})
        return any(one.endswith("/bsp") for one in shown.values(variable))

    wait_until(offered, "the program is offered")


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_disturbed_job_stands_among_the_alarms_with_its_straggler_and_sentence(prometheus: str) -> None:
    def alarms() -> list[dict[str, str | float]]:
        shown = board("facility", prometheus)
        [panel] = [panel for panel in shown.panels if panel["title"] == "Alarms now"]
        return [row for row in shown.table(panel) if (row["Job"], row.get("Cause")) == ("lab/20.0.0", "straggler")]

    wait_until(alarms, "the disturbed job has its cause")
    [disturbed] = alarms()
    assert (disturbed["User"], disturbed["Members"]) == ("ada", "n3")
    assert "n3 worked" in str(disturbed["Sentence"])
    assert float(disturbed["Score"]) > 1
    assert float(disturbed["Slowdown"]) > 1
    assert float(disturbed["Since"]) / 1000 == pytest.approx(time.time(), abs=600)
