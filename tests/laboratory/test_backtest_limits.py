"""`barograph backtest limits` on logs made from a seed."""

from __future__ import annotations

import contextlib
import gzip
import io
import json

import numpy as np
import pytest
from rich.progress import Progress

from barograph.cli import main
from barograph_lab.job_log import read_jobs
from barograph_lab.studies.limits import RISKS, Forecasts, ImportedRuns, LoggedJob, in_order, score, walk
from helpers import job_log

OURS, REQUEST = "predict", "request"


def limits(*words):
    return main(["backtest", "limits", *map(str, words)])


def overall(out):
    """The answer's scores of the whole log by predictor."""
    return {one["predictor"]: one for one in json.loads(out)["scores"] if one["part"] == "all"}


def scores(capsys, *words):
    """The same of a log, and standard error."""
    assert limits(*words, "--json") == 0
    out, err = capsys.readouterr()
    return overall(out), err


@pytest.fixture(scope="module")
def long_logs(tmp_path_factory):
    """The scores of two logs of 1,500 jobs, by what makes them: seconds of work, so done once."""
    found, folder = {}, tmp_path_factory.mktemp("logs")
    for make in (job_log.repetitive, job_log.drifting):
        log, out = job_log.write(folder / f"{make.__name__}.swf", make(1500, 2)), io.StringIO()
        with contextlib.redirect_stdout(out):
            assert limits(log, "--json") == 0
        found[make] = overall(out.getvalue())
    return found


def forecasts(path):
    progress = Progress(disable=True)
    progress.add_task("reading")
    jobs = in_order(read_jobs(path, progress)[0])
    return walk(jobs, ImportedRuns(RISKS), len(RISKS), range(len(jobs)))


def test_a_repetitive_log_is_predicted_better_than_by_the_rivals(long_logs):
    found = long_logs[job_log.repetitive]
    rivals = [one for name, one in found.items() if name != OURS]
    assert found[OURS]["accuracy"] > max(one["accuracy"] for one in rivals) + 0.2
    assert found[OURS]["mae"] < min(one["mae"] for one in rivals)
    assert found[REQUEST]["limits"][0]["killed"] == 0.0


def test_limits_hold_their_risk_from_the_begin_of_a_log_and_nearly_so_where_it_changes_level(long_logs):
    for make, more in ((job_log.repetitive, 0.005), (job_log.drifting, 0.04)):
        shares = [(one["risk"], one["killed"]) for one in long_logs[make][OURS]["limits"]]
        assert all(0.2 * risk < killed < risk + more for risk, killed in shares), shares
    assert long_logs[job_log.repetitive][OURS]["limits"][0]["median_over_request"] < 1.5


def test_the_future_of_a_log_changes_no_forecast(tmp_path):
    rows = job_log.repetitive(800, 3)
    before = forecasts(job_log.write(tmp_path / "a.swf", rows))
    split = rows[600][job_log.SUBMITTED]
    changed = 0
    for row in rows:
        ended = row[job_log.SUBMITTED] + row[job_log.WAITED] + row[job_log.RUNTIME]
        if ended > split:
            row[job_log.RUNTIME] += split - ended + 100_000
            row[job_log.STATUS] = 0
            changed += 1
    after = forecasts(job_log.write(tmp_path / "b.swf", rows))
    known = sum(row[job_log.SUBMITTED] <= split for row in rows)
    assert changed > 200
    np.testing.assert_array_equal(before.seconds[:known], after.seconds[:known])
    np.testing.assert_array_equal(before.limits[:known], after.limits[:known])
    assert not np.array_equal(before.seconds[known:], after.seconds[known:], equal_nan=True)


def test_rivals_that_the_log_does_not_allow_have_a_reason(tmp_path, capsys):
    rows = job_log.drifting(300, 4)
    log = job_log.write(tmp_path / "log.swf", rows)
    assert limits(log) == 0
    out, err = capsys.readouterr()
    assert "last 2 of user and executable: -, because no job of the log has an executable" in err
    assert "request: -, because no job of the log has a requested time" in err
    assert out.count(" - │") >= 2
    for row in rows:
        row[job_log.USER] = -1
    found, _ = scores(capsys, job_log.write(tmp_path / "none.swf", rows))
    assert found["last 2 of user"]["reason"] == "no job of the log has a user"
    assert found[OURS]["reason"] == "no job of the log has a user"


def test_jobs_that_did_not_run_are_counted_and_left_out(tmp_path, capsys):
    rows = job_log.repetitive(50, 5)
    rows[3][job_log.RUNTIME], rows[4][job_log.RUNTIME] = 0, -1
    rows[4][job_log.STATUS] = rows[6][job_log.STATUS] = 5
    rows[5][job_log.STATUS] = 3
    _, err = scores(capsys, job_log.write(tmp_path / "log.swf", rows))
    assert "2 jobs without runtime of " in err
    assert "1 lines about parts of jobs of " in err


def test_the_first_jobs_of_a_log_are_a_log(tmp_path, capsys):
    rows = job_log.repetitive(300, 6)
    found, _ = scores(capsys, job_log.write(tmp_path / "log.swf", rows), "--jobs", 120)
    short, _ = scores(capsys, job_log.write(tmp_path / "short.swf", rows[:120]))
    assert found == short


def test_a_compressed_log_out_of_order_is_the_same_log(tmp_path):
    rows = job_log.repetitive(120, 6)
    plain = forecasts(job_log.write(tmp_path / "log.swf", rows))
    packed = tmp_path / "log.swf.gz"
    packed.write_bytes(gzip.compress(job_log.write(tmp_path / "back.swf", rows[60:] + rows[:60]).read_bytes()))
    np.testing.assert_array_equal(forecasts(packed).seconds, plain.seconds)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ": 0 jobs that ran, expected at least 2 in Standard Workload Format"),
        ("; only a header\n", ": 0 jobs that ran, expected at least 2 in Standard Workload Format"),
        ("; header\n1 2 3\n", ":2: 3 fields, expected 18"),
        ("1 0 0 x 8 -1 -1 8 60 -1 1 1 1 1 1 -1 -1 -1\n", ":1: field 4 is 'x', expected a number"),
        (
            "1 -1 0 9 8 -1 -1 8 60 -1 1 1 1 1 1 -1 -1 -1\n",
            ":1: field 2 is '-1', expected the submission in seconds from 0",
        ),
    ],
)
def test_what_is_no_log_is_one_error(text, wanted, tmp_path, capsys):
    log = tmp_path / "log.swf"
    log.write_text(text)
    assert limits(log) == 65
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"barograph backtest: {log}{wanted}\n")


def test_a_damaged_gzip_file_is_one_error(tmp_path, capsys):
    packed = tmp_path / "log.swf.gz"
    whole = gzip.compress(job_log.write(tmp_path / "log.swf", job_log.repetitive(200, 7)).read_bytes())
    packed.write_bytes(whole[:-100])
    assert limits(packed) == 65
    err = capsys.readouterr().err
    assert err.startswith(f"barograph backtest: {packed}: ")
    assert err.endswith("expected a whole gzip file\n")


def test_jobs_that_run_longer_than_their_limit_are_counted_but_failed_ones_are_not():
    seconds = [101.0, 200.0, 300.0, 400.0, 50.0, 100.0, 10.0, 99.0, 1.0, 1e9]
    jobs = [LoggedJob(float(at), at + 5.0, one, failed=one == 1e9) for at, one in enumerate(seconds)]
    limits = np.full((10, 1), 100.0)
    limits[8] = np.nan
    everything, first, second = score("any", Forecasts(np.full(10, 50.0), limits), jobs, [0.1])
    assert (everything.jobs, first.jobs, second.jobs) == (9, 5, 4)
    assert [(one.jobs, one.killed) for one in (everything.limits[0], first.limits[0], second.limits[0])] == [
        (8, 0.5),
        (5, 0.8),
        (3, 0.0),
    ]
    assert second.accuracy == pytest.approx((0.5 + 0.2 + 50 / 99 + 0.02) / 4)
    assert second.limits[0].unused_hours == pytest.approx((0 + 90 + 1) / 3600)
