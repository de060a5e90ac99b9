"""`barograph backtest sets` on results with known ratios."""

import json

import pytest

from barograph.cli import main
from barograph_collector.daemon.service import Exit


def write(folder, name, errors, *, refused=(), coverage=(1.0,)):
    """A file as `backtest scaling --json` prints it. errors: by model. coverage: of ours, one workload each."""
    summary = [
        {"model": model, "refused": int(model in refused), "median_ape": error, "mean_ape": 2 * error}
        for model, error in errors.items()
    ]
    workloads = [
        {"by": {"app": "a", "n": at}, "model": "barograph", "scored": 10, "unanswered": 0, "coverage_95": share}
        for at, share in enumerate(coverage)
    ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"summary": summary, "workloads": workloads}))
    return str(path)


def run(capsys, *arguments):
    assert main(["backtest", "sets", *arguments, "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    return {one["model"]: one for one in found["models"]}, {one["name"]: one for one in found["sets"]}


def test_a_model_has_the_geometric_mean_and_the_worst_of_its_ratios_to_the_best(tmp_path, capsys):
    files = [
        write(tmp_path, "x", {"barograph": 0.1, "amdahl": 0.2, "ernest": 0.3}),
        write(tmp_path, "y", {"barograph": 0.4, "amdahl": 0.1, "ernest": 0.2}, refused=("ernest",)),
    ]
    models, _ = run(capsys, *files)
    assert list(models) == ["amdahl", "barograph", "ernest"]
    assert models["barograph"]["sets"] == 2
    assert models["barograph"]["mean_ratio"]["median_ape"] == pytest.approx(2.0)
    assert models["barograph"]["worst_ratio"]["mean_ape"] == pytest.approx(4.0)
    assert models["ernest"]["sets"] == 1
    assert models["ernest"]["worst_ratio"]["median_ape"] == pytest.approx(3.0)


def test_a_rival_is_chosen_on_the_other_sets_and_must_answer_all(tmp_path, capsys):
    files = [
        write(tmp_path, "x", {"barograph": 0.2, "amdahl": 0.1, "ernest": 0.8, "pmnf": 0.4}),
        write(tmp_path, "y", {"barograph": 0.2, "amdahl": 0.5, "ernest": 0.3, "pmnf": 0.01}, refused=("pmnf",)),
    ]
    _, sets = run(capsys, *files)
    assert {name: one["chosen"]["median_ape"] for name, one in sets.items()} == {"x": "ernest", "y": "amdahl"}
    assert sets["x"]["to_chosen"]["median_ape"] == pytest.approx(0.25)
    assert sets["x"]["to_best"]["median_ape"] == pytest.approx(2.0)
    assert sets["y"]["to_chosen"]["mean_ape"] == pytest.approx(0.4)


def test_the_coverage_of_workloads_that_miss_together_is_less_certain(tmp_path, capsys):
    errors = {"barograph": 0.1, "amdahl": 0.2}
    files = [write(tmp_path, "x", errors, coverage=(1.0, 1.0, 1.0, 0.0)), write(tmp_path, "y", errors)]
    alone = run(capsys, *files)[1]["x"]
    together = run(capsys, *files, "--together", "app")[1]["x"]
    assert alone["coverage"] == together["coverage"] == 0.75
    assert alone["lower"] < 0.75 < alone["upper"]
    assert together["lower"] == together["upper"] == 0.75  # of one application: drawn again it is itself


def test_the_tables_have_a_line_per_model_and_set(tmp_path, capsys):
    files = [write(tmp_path, name, {"barograph": 0.1, "amdahl": 0.2}) for name in ("cabana", "epcc")]
    assert main(["backtest", "sets", *files]) == Exit.OK
    printed = capsys.readouterr().out
    assert [name in printed for name in ("amdahl", "cabana", "epcc", "0.50 amdahl", "geometric mean")] == [True] * 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{}", "expected what `barograph backtest scaling --json` prints"), ("x", "backtest scaling --json` prints")],
)
def test_another_file_is_an_error_that_names_it(text, reason, tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert main(["backtest", "sets", str(path), str(path)]) == Exit.DATA
    said = capsys.readouterr().err
    assert str(path) in said
    assert reason in said


def test_without_a_rival_that_answers_all_there_is_nothing_to_compare(tmp_path, capsys):
    file = write(tmp_path, "x", {"barograph": 0.1, "amdahl": 0.2}, refused=("amdahl",))
    assert main(["backtest", "sets", file, file]) == Exit.DATA
    assert "answered by barograph, expected barograph and a rival" in capsys.readouterr().err
    assert main(["backtest", "sets", file]) == Exit.DATA
    assert "one file, expected two or more" in capsys.readouterr().err
