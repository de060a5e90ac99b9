"""Reports from a real service that has learned from, predicted and judged simulated runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from barograph.charts.axis import linear
from barograph.charts.figure import Figure, draw
from helpers import solver
from helpers.up import Up, complaints

pytestmark = pytest.mark.process

MOST_BYTES = 2 * 2**20


class Page(HTMLParser):
    """The text of a page, its drawings, and the resources it would load."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text()
        self.drawings = re.findall(r"<svg .*?</svg>", self.source, re.DOTALL)
        self.loaded: list[str] = []
        self._words: list[str] = []
        self._unsaid = 0
        self.feed(self.source)
        self.text = " ".join("".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unsaid += tag in ("style", "svg")
        links = ("src", "href", "xlink:href", "data", "action")
        self.loaded += [value or "" for name, value in attrs if name in links and not (value or "").startswith("#")]
        self.loaded += [tag] if tag in ("script", "link", "iframe", "object") else []

    def handle_endtag(self, tag: str) -> None:
        self._unsaid -= tag in ("style", "svg")
        self._words.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._unsaid:
            self._words.append(data)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("report")) as up:
        up.jobs = solver.write_history(up)  # type: ignore[attr-defined]
        yield up


def report(service: Up, path: Path, *options: str) -> Page:
    done = service.run("report", "--output", str(path), *options)
    assert (done.returncode, complaints(done)) == (0, "")
    assert done.stdout.startswith(f"{path}: ")
    return Page(path)


@pytest.fixture(scope="module")
def application(service: Up, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report(service, tmp_path_factory.mktemp("application") / "page.html", "--app", solver.APP)


@pytest.fixture(scope="module")
def slow_job(service: Up, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report(service, tmp_path_factory.mktemp("job") / "page.html", "--job", service.jobs[-1])


@pytest.mark.parametrize("name", ["application", "slow_job"])
def test_a_page_is_self_contained(name, request):
    page = request.getfixturevalue(name)
    assert page.loaded == []
    assert "url(http" not in page.source
    assert "@import" not in page.source
    assert len(page.source.encode()) < MOST_BYTES
    for drawing in page.drawings:
        assert ElementTree.fromstring(drawing).get("aria-label")


def test_a_page_begins_with_runs_variability_and_time_limit(application):
    assert re.search(
        r"26 runs from 2026-01-01 .* at 4 scales: 24 healthy, 1 with an alarm, 1 that did", application.text
    )
    assert re.search(r"It varies most on \d+ ranks on 4 nodes: 95 of 100 healthy runs take", application.text)
    assert re.search(r"solver \(mesh=fine\) on 64 ranks of lab should take [\d.]+ s; 95 of 100 runs", application.text)
    assert re.search(r"Ask for 00:0\d:00: at most [\d.]+ % of such runs need longer\.", application.text)
    assert len(application.drawings) == 5


def test_the_fit_of_maxima_is_trusted_and_that_of_a_mixture_is_not(application):
    verdicts = re.findall(r"(trusted|not trusted): shapes", application.text)
    assert verdicts == ["trusted", "not trusted"]


def test_predictions_are_scored_by_scale_and_alarms_listed(application):
    scored = re.search(r"share inside median error (.*?) The share inside", application.text)
    assert scored
    rows = re.findall(r"(\d+) (\d+) (\d+) (\d+) (\d+) ([\d.]+ %) ([\d.]+ %)", scored[1])
    assert [row[0] for row in rows] == [str(ranks) for ranks in solver.SCALES]
    assert sum(int(row[1]) + int(row[2]) for row in rows) == 8
    assert [row[3:5] for row in rows] == [("0", "0"), ("0", "1"), ("0", "0"), ("1", "0")]
    assert re.search(r"Alarms .* lab/26\.0\.0 1\.\d\d. slow: ", application.text)


def test_since_omits_older_runs(service, tmp_path):
    page = report(service, tmp_path / "page.html", "--app", solver.APP, "--since", "2026-01-02T00:00:00+00:00")
    assert re.search(r"^solver on lab .*?\b2 runs from 2026-01-02 00:00", page.text)


def test_the_number_of_ranks_to_predict_is_an_option(service, tmp_path):
    page = report(service, tmp_path / "page.html", "--app", solver.APP, "--param", "mesh=fine", "--ranks", "16")
    assert "on 16 ranks of lab should take" in page.text


def test_a_job_has_its_verdict_its_classes_and_the_late_node(slow_job):
    assert re.search(r"^Job lab/26\.0\.0 .* Slow: 1\.\d\dx its (history|pace before) since .*n3", slow_job.text)
    assert re.search(r"It took [\d.]+ s, outside of the [\d.]+ s to [\d.]+ s that were predicted", slow_job.text)
    assert re.search(
        r"A 9\d\.?\d* % 400 [\d.]+ [\d.]+ to [\d.]+ Allreduce Grid<double>:: ?relax\(\) norm", slow_job.text
    )
    first = re.search(r"others waited for it (\w+) 8 ", slow_job.text)
    assert first
    assert first[1] == solver.SLOW
    assert "onset" in slow_job.source
    assert len(slow_job.drawings) == 2


def test_without_a_modeler_only_the_prediction_is_missing(service, tmp_path):
    page = report(service, tmp_path / "page.html", "--app", solver.APP, "--modeler", "http://127.0.0.1:1")
    assert "No prediction: no answer from the modeler at http://127.0.0.1:1" in page.text
    assert len(page.drawings) == 4


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--app", "nobody"), 65, "no finished run of 'nobody' is in the log"),
        (("--job", "lab/99.0.0"), 65, "no job 'lab/99.0.0' is in the log, expected one that `barograph status` shows"),
        (("--app", "solver", "--since", "2040-01-01"), 65, "no finished run of 'solver' is in the log since then"),
        (("--app", "solver", "--param", "mesh=x"), 65, "no run with mesh=x in that time, expected parameters"),
        (("--app", "solver", "--ranks", "0"), 2, "argument --ranks: '0', expected a whole number from 1 to 100000000"),
        (("--app", "solver", "--collector", "tcp://127.0.0.1:1"), 69, "no answer from the collector at tcp://127.0.0.1:1"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_a_status(service, tmp_path, options, status, said):
    done = service.run("report", *options, "--output", str(tmp_path / "page.html"))
    assert done.returncode == status
    assert said in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_file_that_cannot_be_written_leaves_nothing(service, tmp_path):
    done = service.run("report", "--app", solver.APP, "--output", str(tmp_path / "none/page.html"))
    assert (done.returncode, done.stderr.count("\n")) == (73, 1)
    assert "cannot write" in done.stderr


def test_a_page_of_runs_without_intervals_says_so(service, tmp_path):
    table = tmp_path / "runs.csv"
    lines = [f"fft,{ranks},{100 / ranks + repeat},<b>&" for ranks in (1, 2, 4) for repeat in range(3)]
    table.write_text("\n".join(["app,ranks,seconds,n", *lines]) + "\n")
    done = service.run(
        "import", str(table), "--cluster", "lab", "--map", "app=app,ranks=ranks,seconds=seconds,param:n=n"
    )
    assert done.returncode == 0, done.stderr
    page = report(service, tmp_path / "page.html", "--app", "fft")
    assert "9 runs at 3 scales" in page.text
    assert "No intervals: these runs were imported" in page.text
    assert "No fit: there are too few single intervals" in page.text
    assert "<b>&" not in page.source
    assert "n=<b>&" in page.text


def test_a_label_is_escaped() -> None:
    axis = linear(0, 1, 0, 100, str)
    drawing = draw('a "quoted" <label> & more', Figure(axis, axis))
    assert ElementTree.fromstring(drawing).get("aria-label") == 'a "quoted" <label> & more'
