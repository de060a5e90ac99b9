"""`barograph backtest scaling` on generated files with known results."""

import json
import math

import pytest

from barograph.cli import main
from barograph_collector.daemon.service import Exit

SCALES = (1, 2, 4, 8, 16, 32, 64)


def write(path, rows, header="app,ranks,seconds"):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def amdahl(app, s, w, scales=SCALES):
    return [(app, p, s + w / p) for p in scales]


def run(capsys, *arguments):
    """Exit status, parsed output or None, standard error."""
    status = main(["backtest", "scaling", *arguments, "--time", "seconds", "--ranks", "ranks", "--by", "app", "--json"])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else None, said.err


def test_runs_above_the_middle_scale_are_scored_and_the_law_of_the_data_makes_no_error(tmp_path, capsys):
    file = write(tmp_path / "runs.csv", [*amdahl("a", 1, 100), *amdahl("b", 2, 50)])
    status, found, _ = run(capsys, file, "--models", "amdahl,log-linear,barograph")
    assert status == Exit.OK
    summary = {row["model"]: row for row in found["summary"]}
    assert list(summary) == ["amdahl", "log-linear", "barograph"]
    assert summary["amdahl"]["median_ape"] == pytest.approx(0, abs=1e-9)
    assert summary["amdahl"]["coverage_95"] is None
    assert 0 < summary["barograph"]["median_ape"] < summary["log-linear"]["median_ape"]
    assert summary["barograph"]["coverage_95"] == 1.0
    rows = [row for row in found["workloads"] if row["model"] == "amdahl"]
    assert [(row["by"], row["scales"], row["learned"], row["scored"]) for row in rows] == [
        ({"app": "a"}, 7, 4, 3),
        ({"app": "b"}, 7, 4, 3),
    ]


def test_all_scales_but_the_largest_are_learned(tmp_path, capsys):
    file = write(tmp_path / "runs.csv", [*amdahl("a", 1, 100), *amdahl("b", 1, 100, (4,))])
    _, found, _ = run(capsys, file, "--models", "amdahl", "--train", "all-but-largest")
    (row,) = found["workloads"]
    assert (row["by"], row["scales"], row["learned"], row["scored"]) == ({"app": "a"}, 7, 6, 1)


def test_errors_are_those_computed_by_hand(tmp_path, capsys):
    """Learned T = 8/p at 1 and 2 ranks; observed 4 s at 4 ranks and 2 s at 8: the prediction is half of both."""
    file = write(tmp_path / "runs.csv", [("a", 1, 8), ("a", 2, 4), ("a", 4, 4), ("a", 8, 2)])
    _, found, _ = run(capsys, file, "--models", "amdahl", "--train", "<=2")
    row = found["workloads"][0]
    assert (row["median_ape"], row["mean_ape"]) == (pytest.approx(0.5), pytest.approx(0.5))
    # Speedups over 1 rank: predicted 4 and 8, observed 2 and 4.
    assert row["rmse_speedup"] == pytest.approx(math.sqrt((2**2 + 4**2) / 2))


def test_with_a_test_file_all_of_the_first_is_learned_and_unknown_workloads_are_counted(tmp_path, capsys):
    first = write(tmp_path / "a.csv", amdahl("a", 1, 100))
    second = write(tmp_path / "b.csv", [*amdahl("a", 1, 100, (128, 256)), *amdahl("z", 1, 1, (128,))])
    status, found, said = run(capsys, first, "--test", second, "--models", "amdahl")
    assert status == Exit.OK
    assert [(row["learned"], row["scored"]) for row in found["workloads"]] == [(7, 2)]
    assert "1 of 2 workloads of" in said


def test_workloads_of_few_scales_are_learned_only_and_blank_rows_are_counted(tmp_path, capsys):
    file = write(tmp_path / "runs.csv", [*amdahl("a", 1, 100), *amdahl("b", 1, 90, (1, 2)), ("a", 128, "")])
    _, found, said = run(capsys, file, "--models", "barograph")
    assert {row["by"]["app"] for row in found["workloads"]} == {"a"}
    assert f"1 rows of {file} have no time above 0, or a blank scale or size, and are left out" in said
    assert "1 of 2 workloads are only learned" in said


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", 2, "inf"), "line 9: column 'seconds' is 'inf', expected seconds, not negative"),
        (("a", 2, -1), "line 9: column 'seconds' is '-1', expected seconds, not negative"),
        (("a", 0, 1), "line 9: column 'ranks' is '0', expected a whole number from 1 to 100000000"),
        (("a", 10**9, 1), "line 9: column 'ranks' is '1000000000', expected a whole number from 1 to 100000000"),
        (("a", "2 nodes", 1), "line 9: column 'ranks' is '2 nodes', expected a whole number from 1 to 100000000"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(tmp_path, capsys, row, message):
    file = write(tmp_path / "runs.csv", [*amdahl("a", 1, 100), row])
    status, found, said = run(capsys, file)
    assert (status, found) == (Exit.DATA, None)
    assert said == f"barograph backtest: {file}, {message}\n"


def test_one_scale_is_refused_with_the_reason(tmp_path, capsys):
    file = write(tmp_path / "runs.csv", amdahl("a", 1, 100, (4,)) * 3)
    status, _, said = run(capsys, file)
    assert status == Exit.DATA
    assert "no workload by app has runs to learn from, runs to score and 6 scales or more, but 0 at most" in said


def test_unknown_models_and_rules_are_named(tmp_path, capsys):
    file = write(tmp_path / "runs.csv", amdahl("a", 1, 100))
    status, _, said = run(capsys, file, "--models", "amdal")
    assert status == Exit.DATA
    assert "no model 'amdal', expected all or some of barograph, amdahl" in said
    with pytest.raises(SystemExit) as error:
        run(capsys, file, "--train", "half")
    assert error.value.code == 2
    assert "'half', expected lower-half, all-but-largest or <=N" in capsys.readouterr().err
