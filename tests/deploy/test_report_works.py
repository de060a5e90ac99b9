"""Reports on an application whose runs are of several works."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from barograph.cli import main
from barograph.views.context import ViewContext
from helpers.log import Producer, collector_on

SINCE = 1_767_225_600.0
GROUPS: Mapping[int, Sequence[str]] = {8: ("", "+3f2a1c", "+b07d9e"), 16: ("", "+3f2a1c")}
"""What the names of groups end with, by number of ranks."""


def write_runs(
    producer: Producer, app: str, groups: Mapping[int, Sequence[str]], params: Sequence[str] = ("{}",)
) -> None:
    """Three runs of each group; those of one work take twice as long as those of the one before.

    params: of the runs, in turn, as JSON.
    """
    seq = producer.hello().acked
    runs = [(ranks, at, of) for ranks, labels in groups.items() for at, of in enumerate(labels) for _ in range(3)]
    for number, (ranks, at, label) in enumerate(runs, 1):
        job, workload, started = f"lab/{app}{number}.0.0", f"lab/{app}@{ranks}x1", SINCE + 3600.0 * number
        seconds = 2.0**at * 800.0 / ranks * (1 + 0.01 * (number % 3))
        rows = {
            "jobs": {"job": job, "cluster": "lab", "workload": workload, "app": app, "user": "ann",
                     "params": params[number % len(params)],
                     "ranks": ranks, "nodes": 1, "host": "n1", "started_at": started, "scheduler": "none",
                     "account": "", "unique_id": ""},
            "assignments": {"job": job, "workload": workload + label, "family": workload, "how": "first",
                            "reason": "", "time": started},
            "runs": {"job": job, "ended_at": started + seconds, "runtime_seconds": seconds, "exit_status": 0,
                     "intervals": 0, "dropped": 0, "imported": 0},
        }  # fmt: skip
        for table, values in rows.items():
            seq += 1
            producer.append(seq, table, 1, values)
    producer.receive_ack(seq)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with collector_on(tmp_path_factory.mktemp("works") / "log.duckdb") as collector:
        for app, groups in (("heat", GROUPS), ("plain", dict.fromkeys(GROUPS, ("",)))):
            with Producer(collector.endpoint, app) as producer:
                write_runs(producer, app, groups)
        with Producer(collector.endpoint, "sizes") as producer:
            sizes = [f'{{"mesh":"fine","size":"{size}"}}' for size in (1, 2, 2)]
            write_runs(producer, "sizes", {8: ("",), 16: ("",)}, sizes)
        yield collector.endpoint


def report(endpoint: str, app: str, path: Path, *words: str) -> str:
    """The page of an application, without a modeler."""
    options = [*words, "--app", app, "--output", str(path), "--collector", endpoint, "--modeler", "http://127.0.0.1:1"]
    assert main(["report", *options]) == 0
    return html.unescape(path.read_text())


def runs_table(page: str) -> list[list[str]]:
    """The cells of the table of runs by scale, with its head."""
    table = page.partition("How long runs take")[2].partition("<table>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_works_at_the_same_ranks_have_their_labels_in_the_table_and_below_the_axis(endpoint, tmp_path):
    page = report(endpoint, "heat", tmp_path / "page.html")
    head, *rows = runs_table(page)
    assert head[:4] == ["ranks", "nodes", "work", "healthy"]
    expected = [[str(ranks), "1", of.removeprefix("+") or "first", "3"] for ranks, of in _all(GROUPS)]
    assert [row[:4] for row in rows] == expected
    chart = page.partition("<svg")[2].partition("</svg>")[0]
    below = re.findall(r'text-anchor="middle">(.*?)</text>', chart)
    assert below == [text for ranks, _, work, _ in expected for text in (ranks, work)]
    assert ">ranks and work</text>" in chart


def test_groups_of_like_work_are_counted_and_scales_by_ranks(endpoint, tmp_path):
    page = report(endpoint, "heat", tmp_path / "page.html")
    assert re.search(r"15 runs from .* in 5 groups of like work at 2 scales: 15 healthy", page)


def test_one_work_has_no_column_and_no_label(endpoint, tmp_path):
    page = report(endpoint, "plain", tmp_path / "page.html")
    assert re.search(r"6 runs from .* UTC at 2 scales: 6 healthy", page)
    head, *rows = runs_table(page)
    assert head[:3] == ["ranks", "nodes", "healthy"]
    assert [row[:3] for row in rows] == [["8", "1", "3"], ["16", "1", "3"]]
    assert ">ranks</text>" in page


def test_of_the_parameters_that_agree_with_those_given_the_ones_with_most_runs_are_reported(endpoint, tmp_path):
    page = report(endpoint, "sizes", tmp_path / "page.html", "--param", "mesh=fine")
    assert "mesh=fine, size=2; the log has 1 other set of parameters" in page
    page = report(endpoint, "sizes", tmp_path / "page.html", "--param", "size=1")
    assert "mesh=fine, size=1; the log has 1 other set of parameters" in page


def test_numbers_that_were_recognised_choose_what_is_predicted_and_not_the_runs(endpoint, tmp_path, monkeypatch):
    asked = []

    def predict_some(context: ViewContext, params: Mapping[str, str], **fields: object) -> tuple[None, str]:
        asked.append(params)
        return None, "not asked"

    monkeypatch.setattr(ViewContext, "predict_some", predict_some)
    page = report(endpoint, "heat", tmp_path / "page.html", "--param", "input2=8000", "--param", "work=a88e1a")
    assert re.search(r"15 runs from .* in 5 groups of like work", page)
    assert asked == [{"input2": "8000", "work": "a88e1a"}]


def _all(groups: Mapping[int, Sequence[str]]) -> Iterator[tuple[int, str]]:
    return ((ranks, label) for ranks, labels in groups.items() for label in labels)
