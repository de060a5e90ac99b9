"""The dashboards: made by code, true to Grafana's model, and every panel has data from a live service."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as Model
from matplotlib import image

from barograph_dashboards.__main__ import DASHBOARDS, DIRECTORY, text
from barograph_dashboards.preview.__main__ import main as preview
from barograph_dashboards.preview.dashboard import Dashboard
from barograph_dashboards.preview.draw import THEMES
from barograph_dashboards.preview.prometheus import Prometheus
from barograph_dashboards.preview.units import written
from helpers.alerting import running, tool, wait_until
from helpers.stage import stage
from helpers.up import Up, free_ports

REPOSITORY = Path(__file__).parents[2]
CONFIGURATION = REPOSITORY / "deploy/prometheus/prometheus.yml"
RULES = REPOSITORY / "alerts/rules"
FILES = [DIRECTORY / f"{name}.json" for name in DASHBOARDS]
DEADLINE_SECONDS = 120.0

every_dashboard = pytest.mark.parametrize("name", DASHBOARDS)


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text())
    return found


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in document(name)["panels"] if panel["type"] != "row"]


@every_dashboard
def test_the_json_in_the_repository_is_what_the_code_makes(name: str) -> None:
    assert (DIRECTORY / f"{name}.json").read_text() == text(DASHBOARDS[name]())


@every_dashboard
def test_grafanas_own_model_of_a_dashboard_loses_nothing_of_it(name: str) -> None:
    register_default_plugins()
    there_and_back = json.loads(json.dumps(Model.from_json(document(name)), cls=JSONEncoder))
    assert there_and_back == document(name)


@every_dashboard
def test_every_panel_says_what_it_shows_and_what_it_says_when_there_is_nothing(name: str) -> None:
    shown = panels(name)
    assert len({panel["id"] for panel in shown}) == len(shown)
    for panel in shown:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


@every_dashboard
def test_no_two_panels_overlap_and_all_are_within_the_grid(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(name):
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        assert x + w <= 24, panel["title"]
        cells = set(itertools.product(range(x, x + w), range(y, y + h)))
        assert not taken & cells, panel["title"]
        taken |= cells


def test_links_lead_to_dashboards_and_variables_that_exist() -> None:
    known = {document(name)["uid"]: document(name) for name in DASHBOARDS}
    rules = (RULES / "barograph.rules.yml").read_text()
    links = [link for name in DASHBOARDS for link in re.findall(r"/d/[^\"]+", json.dumps(document(name)))]
    links += re.findall(r"/d/\S+", rules)
    for link in links:
        path, _, query = link.partition("?")
        target = known[path.removeprefix("/d/")]
        names = {f"var-{variable['name']}" for variable in target["templating"]["list"]}
        assert {part.partition("=")[0] for part in query.split("&") if part} <= names, link


def test_every_alert_says_which_dashboard_to_look_at() -> None:
    _, *alerts = (RULES / "barograph.rules.yml").read_text().split("- alert: ")
    assert alerts
    # The alerts of jobs share their annotations.
    assert [
        text.split()[0] for text in alerts if "dashboard: /d/" not in text and "annotations: *job" not in text
    ] == []


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


def empty_panels(path: Path, url: str) -> dict[str, str]:
    """Panels with a query that has no number in it, and that query as it was asked."""
    now = time.time()
    board = Dashboard(path, Prometheus(url, now - 60, now), "10s", {"job": "lab/20.0.0"} if path.stem == "job" else {})
    found = {}
    for panel in board.panels:
        for target, samples in board.ask(panel):
            if all(math.isnan(value) for sample in samples for _, value in sample.points):
                found[panel["title"]] = board.filled(target["expr"])
    return found


@pytest.mark.integration
@pytest.mark.timeout(600)
@every_dashboard
def test_every_query_of_every_panel_has_an_answer(name: str, prometheus: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while empty := empty_panels(DIRECTORY / f"{name}.json", prometheus):
        assert time.monotonic() < deadline, empty
        time.sleep(1)


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_an_empty_panel_and_a_wrong_query_are_noticed(prometheus: str, tmp_path: Path) -> None:
    broken = document("facility")
    first, second = [panel for panel in broken["panels"] if panel["type"] == "stat"][:2]
    broken["panels"] = [first, second]
    first["targets"][0]["expr"] = "barograph_no_such_metric"
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    wait_until(
        lambda: list(empty_panels(tmp_path / "broken.json", prometheus)) == [first["title"]], "only the first is empty"
    )
    second["targets"][0]["expr"] = "sum(("
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    with pytest.raises(Exception, match="parse error"):
        empty_panels(tmp_path / "broken.json", prometheus)


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_program_that_was_really_watched_can_be_chosen_on_the_dashboard_of_applications(prometheus: str) -> None:
    [query] = [one["query"] for one in document("application")["templating"]["list"] if one["name"] == "application"]
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
    assert found
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not any(
        "/bsp@2x1" in workload
        for workload in Prometheus(prometheus, time.time() - 600, time.time()).label_values(found[1], found[2])
    ):
        assert time.monotonic() < deadline
        time.sleep(1)


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize("theme", THEMES)
@every_dashboard
def test_a_dashboard_can_be_drawn(name: str, theme: str, prometheus: str, tmp_path: Path) -> None:
    words = [str(DIRECTORY / f"{name}.json"), str(tmp_path / "a.png"), f"--prometheus={prometheus}", f"--theme={theme}"]
    assert preview([*words, "--hours=0.02", "--rate-interval=10s"]) == 0
    height, width, _ = image.imread(tmp_path / "a.png").shape
    assert width > 1400
    assert height > 1400


def test_without_prometheus_the_preview_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)}"
    status = preview([str(DIRECTORY / "job.json"), str(tmp_path / "a.png"), f"--prometheus={nowhere}"])
    assert status == 69
    assert capsys.readouterr().err.startswith(f"preview: {nowhere}: ")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0042, "s", "4.2 ms"),
        (5400.0, "s", "1.5 h"),
        (5000.0, "locale", "5,000"),
        (0.956, "percentunit", "95.6 %"),
        (3 * 2.0**30, "bytes", "3 GiB"),
        (1500.0, "cps", "1.5 K /s"),
        (1000 * 880.0, "dateTimeFromNow", "2 min ago"),
        (1000 * 1090.0, "dateTimeFromNow", "in 2 min"),
        (math.nan, "s", "-"),
    ],
)
def test_numbers_are_written_with_their_units(value: float, unit: str, text: str) -> None:
    assert written(value, unit, clock=lambda: 1000.0) == text


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_disturbed_job_stands_among_the_alarms_with_its_straggler_and_sentence(prometheus: str) -> None:
    def alarms() -> list[Mapping[str, str]]:
        now = time.time()
        board = Dashboard(DIRECTORY / "facility.json", Prometheus(prometheus, now - 60, now), "10s", {})
        [panel] = [panel for panel in board.panels if panel["title"] == "Alarms now"]
        labels = [sample.labels for sample in next(iter(board.ask(panel)))[1]]
        return [one for one in labels if (one["job"], one["cause"]) == ("lab/20.0.0", "straggler")]

    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := alarms()):
        assert time.monotonic() < deadline
        time.sleep(1)
    [disturbed] = found
    assert (disturbed["user"], disturbed["members"]) == ("ada", "n3")
    assert "n3 worked" in disturbed["sentence"]
