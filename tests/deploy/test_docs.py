"""The documentation says what the code does: metrics, settings, commands, links and paths."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.metrics_core import Metric

from barograph.cli import COMMANDS
from barograph.cli import main as barograph
from barograph.operate import config_reference
from barograph_agent.protocol.tables import TABLES, Kind, Table
from barograph_agent.settings.sources import Configuration
from barograph_alerts.export.exporter import AlertsExporter
from barograph_alerts.processor import Scorer
from barograph_alerts.settings import AlertsSettings
from barograph_collector.client.follow import LogWriter
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.quarantine import Quarantine, QuarantineExporter
from barograph_collector.daemon.reload import Reload
from barograph_collector.daemon.service import Exit, daemon_registry
from barograph_collector.daemon.source import LogSource, SourceExporter
from barograph_collector.exporter import Exporter, LakeExporter
from barograph_collector.ingest.counters import Counters
from barograph_collector.lake.sealer import LakeFigures
from barograph_collector.storage.layout import OWN_COLUMNS
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.recognition.changes import ChangeWatch
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.exporter import ModelerExporter
from barograph_modeler.serving.page import AnswerFamilies
from barograph_modeler.serving.question import Question
from helpers.executor import Inline
from helpers.features import Solves, inline_features
from helpers.jobs import Simulation, verdict
from helpers.scaling import Campaign

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
FOLDERS = ["agent", "collector", "modeler", "alerts", "deploy"]
PACKAGES = {path.parent.name for folder in FOLDERS for path in (REPOSITORY / folder).glob("*/__init__.py")}
SOURCES = [str(path.relative_to(REPOSITORY)) for top in [*FOLDERS, "tests"] for path in (REPOSITORY / top).rglob("*.*")]
SETTINGS = (DOCS / "reference/settings.md").read_text()
CONFIGURATION = SETTINGS.partition(f"\n{config_reference.HEADING}\n")[2].partition("\n## ")[0]
ADR = DOCS / "adr"
TOOLS = {
    "amtool",
    "apt-get",
    "build-deb",
    "chmod",
    "cp",
    "curl",
    "dask",
    "export",
    "install",
    "journalctl",
    "jq",
    "ln",
    "make",
    "man",
    "mkdir",
    "pip",
    "pipx",
    "podman",
    "promtool",
    "python",
    "python3",
    "runuser",
    "sacct",
    "scontrol",
    "srun",
    "systemctl",
    "systemd-sysusers",
    "systemd-tmpfiles",
    "xargs",
}

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


def table_rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every Markdown table whose first cell is code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


# Metrics


def filled() -> tuple[Learner, Scorer]:
    """A learner that has learned from four runs, and a scorer that has their pace and a slow job."""
    simulation, learner, scorer = Simulation(), Learner(), Scorer()
    now = simulation.now
    for job in [simulation.job() for _ in range(4)]:
        for table, columns in job.items():
            learner.observe(table, columns, now)
        learner.observe("scores", verdict(job, 0.0), now)
        for output in learner.step(now):
            if output.table in ("paces", "bands"):
                columns = {name: np.broadcast_to(value, output.rows) for name, value in output.columns.items()}
                scorer.observe(output.table, columns, now)
    slow = simulation.job(slow_from=0, factor=2.0)
    for table in ("jobs", "blocks"):
        learner.observe(table, slow[table], now)
        scorer.observe(table, slow[table], now)
    scorer.step(now)
    for _ in range(30):
        scorer.nodes.compare({"n1": 0.1, "n2": 0.0, "n3": 0.0, "n4": 0.0})
    return learner, scorer


def feature_forecaster() -> FeatureForecaster:
    """The same of features: one that has a model of them, and has predicted a run that has ended."""
    solves, features = Solves(), inline_features()
    processor = ModelerProcessor(Learner(), Forecaster(PredictorLibrary(Inline())), features)
    for _ in range(30):
        for table, columns in solves.run().items():
            processor.observe(table, columns, 0.0)
        processor.step(0.0)
    processor.step(0.0)
    for table, columns in solves.run().items():
        processor.observe(table, columns, 0.0)
        processor.step(0.0)
        processor.step(0.0)
    return features


def forecasting() -> Forecaster:
    """A forecaster that has learned an application, predicted one of its runs and seen it end."""
    campaign, sized, forecaster = Campaign(), Campaign(cluster="other"), Forecaster(PredictorLibrary(Inline()))
    processor = ModelerProcessor(Learner(), forecaster, inline_features())
    for ranks in (1, 2, 4, 8):
        for table, columns in campaign.run(ranks).items():
            processor.observe(table, columns, 0.0)
    for ranks, n in itertools.product((2, 4, 8), (1, 2)):
        for table, columns in sized.run(ranks, n).items():
            processor.observe(table, columns, 0.0)
    for table, columns in campaign.run(16).items():
        processor.step(0.0)
        processor.step(0.0)
        processor.observe(table, columns, 0.0)
    processor.step(0.0)
    return forecaster


def rebuilt() -> ChangeWatch:
    """Runs of a program that was built anew and is slower since."""
    changes = ChangeWatch()
    for number in range(20):
        works = {"job": [f"lab/{number}.0.0"], "executable": ["a1" if number < 10 else "b2"], "platform": [""]}
        changes.read("works", works)
        changes.end(f"lab/{number}.0.0", "lab/app@2x1", 10.0 if number < 10 else 12.0, 0.0)
    return changes


def quarantined() -> Quarantine:
    """The quarantine of a processor that could not process a row."""
    quarantine = Quarantine()
    quarantine.failures["blocks"] += 1
    return quarantine


def followed() -> SourceExporter:
    """The collector that a daemon follows."""
    writer = LogWriter("tcp://a:1", "any/1")
    writer.close(0.0)
    return SourceExporter("any", LogSource(LogReader("tcp://a:1"), []), writer)


@cache
def exposed() -> dict[str, list[Metric]]:
    """Per section of the reference, what its exporters give when they have nothing and when they have something."""
    learner, scorer = filled()
    forecaster = forecasting()
    known = forecaster.library.published[Application("lab", "solver")]
    now = Simulation.now
    daemon, _ = daemon_registry("any")
    configuration = Configuration(AlertsSettings, environment={}, file=None)
    Reload(configuration, lambda: None, Notifier({}), daemon)
    exporters = {
        "Every daemon": [daemon],
        "Modeler and alerts, both": [QuarantineExporter(quarantined()), followed()],
        "Collector": [Exporter(Counters(), Path("nowhere/log.duckdb"))],
        "The lake": [LakeExporter(LakeFigures())],
        "Modeler": [
            ModelerExporter(Learner(), Forecaster(PredictorLibrary(Inline())), inline_features(), ChangeWatch()),
            ModelerExporter(learner, forecaster, feature_forecaster(), rebuilt()),
        ],
        "Answers of the modeler": [AnswerFamilies(answer(known, Question("solver", 64, params={"n": "1"})))],
        "Alerts": [AlertsExporter(Scorer(), lambda: now), AlertsExporter(scorer, lambda: now)],
    }
    return {name: [metric for one in each for metric in one.collect()] for name, each in exporters.items()}


def name_of(metric: Metric) -> str:
    return metric.name + ("_total" if metric.type == "counter" else "")


def labels_of(metric: Metric) -> set[str]:
    return {label for sample in metric.samples for label in sample.labels}


def test_the_reference_lists_every_metric_with_its_type_and_labels_and_no_other() -> None:
    page = (DOCS / "reference/metrics.md").read_text()
    for section, metrics in exposed().items():
        text = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
        written = {code(row[0])[0]: (row[1], set(code(row[2]))) for row in table_rows(text)}
        found: dict[str, tuple[str, set[str]]] = {}
        for metric in metrics:
            _, labels = found.get(name_of(metric), ("", set()))
            found[name_of(metric)] = (metric.type, labels | labels_of(metric))
        assert written == found, section


def test_every_metric_is_exposed_once_it_has_a_value() -> None:
    silent = {name_of(metric) for metrics in exposed().values() for metric in metrics}
    silent -= {name_of(metric) for metrics in exposed().values() for metric in metrics if metric.samples}
    assert not silent


def test_names_have_base_units_and_the_help_ends_with_them() -> None:
    for metric in (metric for metrics in exposed().values() for metric in metrics):
        assert re.fullmatch(r"barograph(_[a-z0-9]+)+", metric.name)
        assert not re.search(r"_(ms|us|ns|milli|micro|nano|minutes?|hours?|kb|mb|kib|mib|percent)", metric.name)
        assert metric.documentation
        if unit := re.search(r"_(seconds|bytes|ratio)$", metric.name):
            assert metric.documentation.rstrip(".").endswith(unit[1]), metric.name


def test_rules_dashboards_and_pages_name_only_metrics_that_exist() -> None:
    names = {name_of(metric) for metrics in exposed().values() for metric in metrics}
    rules = (REPOSITORY / "alerts/rules/barograph.rules.yml").read_text()
    boards = "".join(path.read_text() for path in (REPOSITORY / "deploy/grafana/dashboards").glob("*.json"))
    asked = {re.sub("_(sum|count)$", "", name) for name in re.findall(r"\bbarograph_\w+", rules + boards)}
    for page in PAGES:
        asked |= {text for text in re.findall(r"`(barograph_\w+)`", page.read_text()) if text not in PACKAGES}
    assert asked <= names


# Tables

TYPES = {
    **dict(zip(Kind, ("name", "text", "float", "int", "uint"), strict=True)),
    **{"VARCHAR": "text", "DOUBLE": "float", "BIGINT": "int", "UBIGINT": "uint", "BOOLEAN": "boolean"},
}


def unit_of(column: str, kind: str) -> str:
    """What the name of a column says of its unit."""
    if kind == "float" and re.search("_at$|^time$|^hour$|^since$", column):
        return "Unix s"
    by_name = {"sum_squares": "s²", "sum_cubes": "s³"}
    by_end = {"seconds": "s", "bytes": "bytes", "hz": "Hz"}
    return by_name.get(column, by_end.get(column.rpartition("_")[2], ""))


def test_the_reference_lists_every_table_with_its_columns_types_units_and_defaults() -> None:
    page = (DOCS / "reference/tables.md").read_text().partition("## Tables that clients write\n")[2]
    found = {
        title: [[cells[0].strip("`"), *cells[1:-1]] for cells in table_rows(text)]
        for title, text in re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    }
    columns = {**{table.name: table.columns for table in TABLES.values()}, **OWN_COLUMNS}
    assert list(found) == list(columns)
    for name, kinds in columns.items():
        table = TABLES.get(name, Table(name, {}))
        defaults, domains = table.defaults, {**table.domains, **table.json}
        expected = []
        for column, kind in kinds.items():
            default = f"`{json.dumps(defaults[column])}`" if column in defaults else ""
            values = [str(domains.get(column, ""))] if domains else []
            expected.append([column, TYPES[kind], unit_of(column, TYPES[kind]), *values, default])
        assert found[name] == expected, name


# Settings


def variables_read() -> set[str]:
    """Every environment variable that the sources name: our own anywhere, others where they are read."""
    found: set[str] = set()
    for folder in [*FOLDERS, "tests"]:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if path != Path(__file__):
                text = path.read_text()
                found.update(re.findall(r"\bBAROGRAPH_[A-Z_]*[A-Z]", text))
                if folder != "tests":
                    found.update(re.findall(r"environ(?:ment)?(?:\.get\(|\[)[\"']([A-Z_]+)", text))
    for path in sorted((REPOSITORY / "agent/shim").glob("*.[ch]")):
        found.update(re.findall(r"(?:\bgetenv\(|\bVARIABLE )\"([A-Z_]+)\"", path.read_text()))
    return found


def test_the_reference_lists_every_environment_variable_and_no_other() -> None:
    text = SETTINGS.partition("## Environment variables")[2].partition("\n## ")[0]
    written = {code(row[0])[0] for row in table_rows(text)}
    in_file = {code(row[4])[0] for row in table_rows(CONFIGURATION)}
    assert written | in_file == variables_read() | in_file | {"CI"}
    assert not written & in_file, "said twice"


def test_the_reference_of_the_configuration_file_has_every_key_as_the_daemons_read_it() -> None:
    assert config_reference.written_into(SETTINGS) == SETTINGS, "python -m barograph.operate.config_reference writes it"


def options_of(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        barograph([command, "--help"])
    return set(re.findall(r"^ +(?:-\w(?: \S+)?, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)) - {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_lists_every_option_of_every_command_and_no_other(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    section = re.search(rf"^### `barograph {command}\b.*?`\n(.*?)(?=^##)", SETTINGS, re.MULTILINE | re.DOTALL)
    assert section, f"no section for {command}"
    written = {code(row[0])[0] for row in table_rows(section[1])}
    if f"(#{command})" in section[1]:  # its options are the keys of its table of the configuration file, and those
        text = CONFIGURATION.partition(f"### `[{command}]`\n")[2].partition("\n### ")[0]
        keys = {f"--{code(row[0])[0].replace('_', '-')}" for row in table_rows(text)}
        assert not written & keys, "said twice"
        written |= keys
    assert written == options_of(command, capsys)


def test_the_reference_has_no_section_for_a_command_that_does_not_exist() -> None:
    assert re.findall(r"^### `barograph (\w+)", SETTINGS, re.MULTILINE) == list(COMMANDS)


def test_every_exit_status_is_explained() -> None:
    text = SETTINGS.partition("## Exit statuses")[2]
    written = {int(status) for status in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    named = {int(status) for status in Exit}
    for path in (path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")):
        pattern = r"^(?:EXIT_\w+|NOT_\w+|USAGE_ERROR|MISSING_EXTRA): Final = (\d+)$"
        named.update(map(int, re.findall(pattern, path.read_text(), re.MULTILINE)))
    assert named <= written <= named | {130}  # 130 is what a shell says of Ctrl-C


# Pages


@by_page
def test_every_command_in_a_page_exists_with_the_options_it_is_given(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for line in (line for block in blocks(page.read_text(), "sh") for line in block.splitlines() if line):
        for part in line.split(" && "):
            words = [word for word in shlex.split(part) if not re.match(r"[A-Z_]+=", word)]
            program = words[0].rpartition("/")[2]
            assert program in TOOLS | {"barograph"}, line
            if program == "make":
                assert words[1] in verbs, line
            if program == "barograph":
                assert words[1] in COMMANDS, line
                own = words[2 : words.index("--")] if "--" in words else words[2:]
                given = {word.partition("=")[0] for word in own if word.startswith("--")}
                assert given <= options_of(words[1], capsys), line


def anchors(text: str) -> set[str]:
    """The names that links can point to, as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


@by_page
def test_every_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there.read_text()), target


@by_page
def test_every_path_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    for text in re.findall(r"`([\w./-]+)`", page.read_text()):
        if text.partition("/")[0] in {*FOLDERS, "tests", "docs"} and "/" in text:
            assert (REPOSITORY / text).exists(), text


@by_page
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    for text in re.findall(r"`([a-z]\w*/\w+(?:/\w+)*\.(?:py|c|h))`", page.read_text()):
        assert any(f"/{path}".endswith(f"/{text}") for path in SOURCES), text


def test_the_page_on_slow_jobs_has_the_words_of_verdicts() -> None:
    job = REPOSITORY / "alerts/barograph_alerts/job"
    texts = [(job / name).read_text() for name in ("verdict.py", "cause_words.py")]
    longer = "{1e3 * seconds:.3g} ms longer per {unit}"
    assert longer in texts[1]
    text = "".join(texts).replace("{_longer(own, unit)}{than}", f"{longer}, the others waited")
    words = re.sub(r"\{[^{}]*\}", "N", text.replace("{unit}", "sync point"))
    phrases = [phrase for row in table_rows((DOCS / "user/slow.md").read_text()) for phrase in code(row[0])]
    assert len(phrases) > 8
    assert [phrase for phrase in phrases if re.sub(r"\d+(\.\d+)?%?", "N", phrase) not in words] == []


def test_the_architecture_lists_every_room_of_every_package() -> None:
    text = (DOCS / "developer/architecture.md").read_text()
    for package in (path.parent for folder in FOLDERS for path in (REPOSITORY / folder).glob("barograph*/py.typed")):
        name = "modeler/barograph_lab" if package.name == "barograph_lab" else package.parent.name
        section = text.partition(f"### `{name}`")[2].partition("\n## ")[0].partition("\n### ")[0]
        rooms = {path.parent.name for path in package.glob("*/__init__.py")}
        assert sorted(name for row in table_rows(section) for name in code(row[0])) == sorted(rooms)


def links(page: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    return {(page.parent / target.partition("#")[0]).resolve() for target in targets}


def test_every_page_can_be_reached_from_the_index() -> None:
    index, decisions = DOCS / "index.md", ADR / "README.md"
    assert set(DOCS.rglob("*.md")) - links(index) == {index, *ADR.glob("[0-9]*.md")}
    assert decisions in links(index)
    assert set(ADR.glob("[0-9]*.md")) <= links(decisions)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        # It has to work without internet.
        assert not re.search(r'(?:src|href)="(?:https?:)?//(?!barograph)[^"]+\.(?:js|css|woff2?)"', page.read_text())


def test_every_decision_has_its_number_and_four_parts_and_every_number_is_in_the_list() -> None:
    numbers = []
    listed = (ADR / "README.md").read_text()
    for page in sorted(ADR.glob("[0-9]*.md")):
        text = page.read_text()
        ((number, title),) = re.findall(r"\A# (\d+)\. (.+)$", text, re.MULTILINE)
        assert page.name.startswith(f"{int(number):04}-")
        assert f"| {number} | [{title}]({page.name}) |" in listed
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Status", "Context", "Decision", "Consequences"]
        numbers.append(int(number))
    retired = [int(number) for number in re.findall(r"^\| (\d+) \| (?!\[)", listed, re.MULTILINE)]
    assert sorted(numbers + retired) == list(range(1, len(numbers + retired) + 1)), "no number twice, and none missing"
