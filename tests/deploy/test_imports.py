"""`barograph import`: formats of job accounts, bad lines, and delivery exactly once."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.cli import main
from barograph.imports import delivery as transport
from barograph.imports.delivery import CollectorUnreachable, Delivery
from barograph.imports.mapping import BadMap, parse_map
from barograph.imports.record import Bad, Entry, RunRecord, Skipped, UnreadableLine, app_name
from barograph.imports.sacct import read_sacct
from barograph.imports.swf import read_swf
from barograph.imports.table import read_table
from barograph.imports.times import duration, instant, span
from barograph_agent.deliver.keys import load
from barograph_collector.auth import keys
from barograph_collector.client.log_reader import LogReader
from barograph_collector.server import Collector
from helpers.log import DEADLINE_SECONDS, collector_on, wait_until

SACCT = """\
JobID|JobName|State|Elapsed|NTasks|NNodes|NCPUS|Start|End|User|Cluster
4711|job.sh|COMPLETED|1-02:03:04||4|128|2026-03-01T12:00:00|2026-03-02T14:03:04|ann|lab
4711.batch|batch|COMPLETED|1-02:03:04|1|1|32|2026-03-01T12:00:00|2026-03-02T14:03:04||lab
4711.extern|extern|COMPLETED|1-02:03:04|4|4|128|2026-03-01T12:00:00|2026-03-02T14:03:04||lab
4711.0|/opt/bin/lmp|COMPLETED|02:03.5|96|4|128|2026-03-01T12:00:00|2026-03-01T12:02:03||lab
4711.1|lmp|FAILED|00:10:03|96|4|128|2026-03-01T13:00:00|2026-03-01T13:10:03||lab
4711.2+0|lmp|COMPLETED|00:10:03|96|4|128|2026-03-01T13:00:00|2026-03-01T13:10:03||lab
4712|lmp|CANCELLED by 1000|00:10:03||4|128|2026-03-01T12:00:00|Unknown|bob|lab
4713_7|lmp|COMPLETED|00:10:03||4|128|2026-03-01T12:00:00|Unknown|bob|lab
4714|lmp|COMPLETED|00:00:00||4|128|2026-03-01T12:00:00|Unknown|bob|lab
47x4|lmp|COMPLETED|00:00:10||4|128|2026-03-01T12:00:00|Unknown|bob|lab
4715|lmp|COMPLETED|00:00:10||8|4|2026-03-01T12:00:00|Unknown|bob|lab
4716|lmp|COMPLETED|00:00:10
"""
SWF = """\
; UnixStartTime: 820454400
;
1 0 10 100 32 -1 -1 32 200 -1 1 3 1 7 1 1 -1 -1
2 5 10 100 32 -1 -1 32 200 -1 0 3 1 7 1 1 -1 -1
3 6 10 100 0 -1 -1 32 200 -1 1 3 1 7 1 1 -1 -1
4 7 10 100 32 -1 -1 32 200 -1 1 3 1 -1 1 1 -1 -1
5 8 10
6 9 10 100 32 -1 -1 32 200 -1 5 3 1 7 1 1 -1 -1
"""


def lines(text: str) -> Iterator[str]:
    return iter(text.splitlines(keepends=True))


def split(entries: Iterator[Entry]) -> tuple[list[RunRecord], list[tuple[int, str]], list[tuple[int, str]]]:
    """Runs, skipped and bad lines."""
    found = list(entries)
    return (
        [one for one in found if isinstance(one, RunRecord)],
        [(one.line, one.state) for one in found if isinstance(one, Skipped)],
        [(one.line, one.reason) for one in found if isinstance(one, Bad)],
    )


# Formats


@pytest.mark.parametrize("order", [lambda rows: rows, lambda rows: rows[::-1], lambda rows: sorted(rows, key=len)])
def test_sacct_runs_are_numbered_steps_or_jobs_without_any_in_any_order(order):
    header, *rows = SACCT.splitlines(keepends=True)
    place = {number: rows.index(row) + 2 for number, row in enumerate(order(rows), 2)}
    runs, skipped, bad = split(read_sacct(iter([header, *order(rows)]), {}, "local", ""))
    runs.sort(key=lambda run: run.job.key)
    skipped, bad = (sorted((place[line], text) for line, text in found) for found in (skipped, bad))
    step, job = runs
    assert (step.job.key, step.job.app, step.job.user) == ("lab/4711.0.0", "lmp", "ann")
    assert (step.ranks, step.nodes, step.seconds) == (96, 4, 123.5)
    assert step.ended_at - step.started_at == 123.0
    assert (job.job.key, job.ranks, job.seconds) == ("lab/4713_7.0.job", 128, 603.0)
    assert job.ended_at == job.started_at + 603.0  # its end is unknown
    assert skipped == [
        (2, "job with steps"),
        (3, "batch step"),
        (4, "extern step"),
        (6, "FAILED"),
        (7, "component of a heterogeneous step"),
        (8, "CANCELLED"),
        (10, "COMPLETED within a second"),
    ]
    assert bad == [
        (11, "id is '47x4', expected a job id of Slurm's such as 4711 or 4711.0"),
        (12, "nodes is 8, expected at most the 4 ranks"),
        (13, "4 cells, expected 11 as in the first line"),
    ]


def test_sacct_columns_can_be_mapped_and_missing_ones_are_named():
    text = "JobID|State|ElapsedRaw|NTasks|Comment|JobName\n1.0|COMPLETED|60|4|solver|a.out\n"
    ((run,), _, _) = split(read_sacct(lines(text), {"app": "Comment", "param:bin": "JobName"}, "local", ""))
    assert (run.job.app, run.job.params, run.seconds) == ("solver", {"bin": "a.out"}, 60.0)
    with pytest.raises(BadMap, match="no column for state, expected State in sacct's --format"):
        list(read_sacct(lines("JobID|JobName|Elapsed|NTasks\n"), {}, "local", ""))


def test_swf_runs_are_completed_jobs_with_an_executable():
    ((run,), skipped, bad) = split(read_swf(lines(SWF), "lab", ""))
    assert (run.job.key, run.job.app, run.job.user) == ("lab/1.0.job", "exe7", "user3")
    assert (run.ranks, run.nodes, run.seconds) == (32, 0, 100.0)
    assert (run.started_at, run.ended_at) == (820454410.0, 820454510.0)
    assert skipped == [(4, "failed"), (6, "without executable number"), (8, "cancelled")]
    assert bad == [
        (5, "allocated processors is '0', expected a whole number from 1 to 100000000"),
        (7, "3 fields, expected 18"),
    ]


def test_csv_columns_are_mapped_or_named_as_fields_and_bad_lines_have_reasons():
    text = (
        'CODE,ranks,"SIZE, cells",t,status\n'
        "fft,8,64,1:00,COMPLETED\n"
        "fft,8,64,1:00,COMPLETED\n"
        "fft,8,64,7,TIMEOUT\n"
        "fft,0,64,7,COMPLETED\n"
        "fft,8,64,-7,COMPLETED\n"
        "fft,8\n"
        "\n"
        "!,8,64,7,COMPLETED\n"
    )
    mapping = parse_map(["app=CODE,param:n=SIZE, cells,seconds=t", "state=status"])
    runs, skipped, bad = split(read_table(lines(text), mapping, "lab", ""))
    assert [(run.job.app, run.ranks, run.seconds, run.job.params) for run in runs] == [
        ("fft", 8, 60.0, {"n": "64"})
    ] * 2
    assert runs[0].job.key != runs[1].job.key  # a repeated measurement
    assert skipped == [(4, "TIMEOUT")]
    assert bad == [
        (5, "ranks is '0', expected a whole number from 1 to 100000000"),
        (6, "seconds is '-7', expected seconds above 0 or [[DAYS-]HOURS:]MINUTES:SECONDS"),
        (7, "2 cells, expected 5 as in the first line"),
        (9, "app is '!', expected a name"),
    ]


def test_a_column_with_the_name_of_a_parameter_is_that_parameter():
    text = "app,ranks,seconds,param:size,param:grid\nfft,8,60,6400,2x2\n"
    runs, _, bad = split(read_table(lines(text), {}, "lab", ""))
    assert (runs[0].job.params, bad) == ({"size": "6400", "grid": "2x2"}, [])
    runs, _, _ = split(read_table(lines(text), parse_map(["param:size=param:grid"]), "lab", ""))
    assert runs[0].job.params == {"size": "2x2", "grid": "2x2"}
    with pytest.raises(BadMap, match="column 'param:', expected param:NAME"):
        list(read_table(lines("app,ranks,seconds,param:\nfft,8,60,1\n"), {}, "lab", ""))


def test_rows_are_the_same_as_of_a_watched_run():
    ((run,), _, _) = split(
        read_table(lines("app,ranks,nodes,seconds,n\nfft,8,2,7.5,64\n"), {"param:n": "n"}, "lab", "")
    )
    assert run.rows["jobs"]["workload"] == run.job.workload(8, 2)
    assert json.loads(run.rows["jobs"]["params"]) == {"n": "64"}
    assert run.rows["runs"]["runtime_seconds"] == 7.5
    assert run.rows["runs"]["exit_status"] == 0


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59_999))
def test_durations_have_the_format_of_slurm(days, hours, minutes, milliseconds):
    seconds = milliseconds / 1000
    total = 86400 * days + 3600 * hours + 60 * minutes + seconds
    if total:
        assert duration("t", f"{days}-{hours:02}:{minutes:02}:{seconds:06.3f}") == pytest.approx(total)
        assert duration("t", repr(total)) == total


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1:2:3:4", "00:60:00", "1-24:00:00", "1e400", "soon"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(UnreadableLine, match="expected seconds above 0"):
        duration("seconds", text)


def test_dates_are_iso_or_unix_seconds_and_a_missing_one_is_computed():
    assert instant("end", "2026-03-01T12:00:00+00:00") == instant("end", "1772366400") == 1772366400.0
    assert instant("end", "Unknown") == 0.0
    with pytest.raises(UnreadableLine, match="end is 'yesterday', expected a date"):
        instant("end", "yesterday")
    for text in ("1772366400000", "20260301", "20260301120000"):  # milliseconds, dates
        with pytest.raises(UnreadableLine, match="expected a date"):
            instant("end", text)
    assert span("", "100", 30.0) == (70.0, 100.0)
    assert span("100", "none", 30.0) == (100.0, 130.0)
    with pytest.raises(UnreadableLine, match="end is '99', expected a time after the start, '100'"):
        span("100", "99", 30.0)


def test_of_local_times_that_occur_twice_those_count_that_fit_the_runtime(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for start, end, seconds in (("02:40", "02:10", 1800), ("02:10", "03:00", 3000), ("02:10", "03:00", 6600)):
            began_at, ended_at = span(f"2026-10-25T{start}:00", f"2026-10-25T{end}:00", seconds)
            assert ended_at - began_at == seconds
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=200))
def test_names_are_converted_to_application_names_or_refused(text):
    try:
        name = app_name(text)
    except UnreadableLine:
        return
    assert 1 <= len(name) <= 40
    assert app_name(name) == name


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=60), max_size=8))
@pytest.mark.parametrize("reader", ["sacct", "swf", "csv"])
def test_no_line_prevents_reading_the_following_ones(reader, noise):
    good = {
        "sacct": "JobID|JobName|State|Elapsed|NTasks\n{}9.0|last|COMPLETED|60|4\n",
        "swf": "{}9 0 10 60 4 -1 -1 32 200 -1 1 3 1 7 1 1 -1 -1\n",
        "csv": "app,ranks,seconds\n{}last,4,60\n",
    }[reader]
    # In CSV a quote may begin a cell that ends in a later line.
    body = "".join(line.replace('"', "").replace("\n", "").replace("\r", "") + "\n" for line in noise)
    text = iter(good.format(body).splitlines(keepends=True))
    read = {
        "sacct": lambda: read_sacct(text, {}, "lab", ""),
        "swf": lambda: read_swf(text, "lab", ""),
        "csv": lambda: read_table(text, {}, "lab", ""),
    }[reader]
    runs, _, _ = split(read())
    assert runs[-1].seconds == 60.0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["ranks"], "'ranks', expected FIELD=COLUMN with FIELD one of app, "),
        (["size=n"], "'size=n', expected FIELD=COLUMN"),
        (["param: =n"], "expected FIELD=COLUMN"),
        (["app=a", "app=b"], "app is given twice: 'a' and 'b'"),
    ],
)
def test_an_invalid_mapping_is_refused(words, reason):
    with pytest.raises(BadMap) as caught:
        parse_map(words)
    assert reason in str(caught.value)


# Delivery


def stored(collector: Collector) -> tuple[list[str], list[float]]:
    """Jobs, and runtimes, in the log."""
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as log:
        jobs = [job for page in log.read_all("jobs") for job in page.columns["job"]]
        return jobs, [float(one) for page in log.read_all("runs") for one in page.columns["runtime_seconds"]]


def csv_of(rows: int) -> str:
    return "app,ranks,seconds\n" + "".join(f"fft,{2 ** (row % 7)},{1 + row}\n" for row in range(rows))


def run(collector: Collector, *words: str | Path) -> int:
    return main(["import", *map(str, words), "--collector", collector.endpoint, "--cluster", "lab"])


def test_importing_again_adds_only_new_runs(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    file.write_text(csv_of(1500))
    assert run(collector, file) == 0
    assert capsys.readouterr().out.splitlines()[0] == "1,500 runs added, 0 known already"
    assert run(collector, file) == 0
    assert capsys.readouterr().out.splitlines()[0] == "0 runs added, 1,500 known already"
    file.write_text(csv_of(1510))
    assert run(collector, file) == 0
    assert capsys.readouterr().out.splitlines()[0] == "10 runs added, 1,500 known already"
    jobs, runtimes = stored(collector)
    assert len(jobs) == len(set(jobs)) == 1510
    assert sorted(runtimes) == [1.0 + row for row in range(1510)]


def test_an_interrupted_import_is_completed_by_the_next(collector, tmp_path):
    """Half of the runs have sent only their first message, as if the importer had been killed."""
    records, _, _ = split(read_table(lines(csv_of(20)), {}, "lab", ""))
    with pytest.MonkeyPatch.context() as patch, Delivery(collector.endpoint) as cut:
        patch.setattr(transport, "MESSAGES", ("jobs",))
        assert len(list(cut.send(iter(records[:10])))) == 10
    with Delivery(collector.endpoint) as whole:
        assert len(list(whole.send(iter(records)))) == 20
        assert (whole.added, whole.known, whole.refused) == (20, 0, [])
    jobs, runtimes = stored(collector)
    assert (len(jobs), len(set(jobs)), len(runtimes)) == (20, 20, 20)


def test_of_several_collectors_each_run_is_in_one_also_after_the_list_has_changed(collector, tmp_path):
    users = [f"{line},u{row}" for row, line in enumerate(csv_of(40).splitlines()[1:])]
    table = "\n".join(["app,ranks,seconds,user", *users])
    records, _, _ = split(read_table(lines(table), {}, "lab", ""))
    with collector_on(tmp_path / "second.duckdb") as second, collector_on(tmp_path / "third.duckdb") as third:
        everywhere = [collector.endpoint, second.endpoint, third.endpoint]
        with pytest.MonkeyPatch.context() as patch, Delivery(",".join(everywhere[:2])) as cut:
            patch.setattr(transport, "MESSAGES", ("jobs",))
            assert len(list(cut.send(iter(records[:20])))) == 20
        for count, added in ((2, 40), (3, 0)):
            with Delivery(",".join(everywhere[:count])) as whole:
                assert len(list(whole.send(iter(records)))) == 40
                assert (whole.added, whole.known) == (added, 40 - added)
        assert [len(runtimes) for _, runtimes in map(stored, (collector, second, third))][2] == 0
        parts = [stored(one) for one in (collector, second)]
    assert sorted(job for jobs, _ in parts for job in jobs) == sorted(record.job.key for record in records)
    assert all(len(jobs) == len(runtimes) > 5 for jobs, runtimes in parts)


def test_an_import_names_the_collector_that_does_not_answer(collector, monkeypatch):
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 0.2)
    records, _, _ = split(read_table(lines(csv_of(3)), {}, "lab", ""))
    with (
        Delivery(f"{collector.endpoint},tcp://127.0.0.1:1") as delivery,
        pytest.raises(CollectorUnreachable, match=r"no answer from the collector at tcp://127\.0\.0\.1:1 within"),
    ):
        list(delivery.send(iter(records)))
    assert stored(collector) == ([], [])


def test_the_first_bad_lines_are_shown_and_all_are_counted(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    file.write_text("app,ranks,seconds\n" + "fft,4,1\n" + "fft,4,never\n" * 25)
    assert run(collector, file) == 65
    out, err = capsys.readouterr()
    assert out == "1 run added, 0 known already\nnot learned: none\n25 bad lines\n"
    shown = err.splitlines()
    assert shown[0].startswith("line 3: seconds is 'never', expected seconds above 0")
    assert shown[20:] == ["more than 20 bad lines; the others are counted only"]


def test_a_duplicate_job_in_a_file_is_a_bad_line(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    file.write_text("app,ranks,seconds,id\nfft,4,1,77\nfft,4,2,77\nfft,4,1,77\n")
    assert run(collector, file) == 65
    out, err = capsys.readouterr()
    assert err == "line 3: job lab/77.0.0 is in line 2 already, expected another id or step\n"
    assert "not learned: 1 repeated line\n" in out
    assert stored(collector)[1] == [1.0]


def test_a_blank_cell_is_no_parameter():
    text = "app,ranks,seconds,param:size,param:grid\nfft,8,60,,2x2\nfft,8,60,64,\n"
    runs, bad = split(read_table(lines(text), {}, "lab", ""))[:2]
    assert ([run.job.params for run in runs], bad) == ([{"grid": "2x2"}, {"size": "64"}], [])


def test_an_application_that_no_line_needs_is_reported(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    file.write_text("app,ranks,seconds\nfft,4,1\n")
    assert run(collector, file, "--app", "solver") == 0
    assert "--app solver was not used: all lines name an application" in capsys.readouterr().out
    file.write_text("app,ranks,seconds\nfft,4,2\n,4,1\n")
    assert run(collector, file, "--app", "solver") == 0
    assert "was not used" not in capsys.readouterr().out


def test_columns_of_which_nothing_is_imported_are_named(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    file.write_text("app,ranks,seconds,size, mesh,,size\nfft,4,1,64,fine,,7\n")
    assert run(collector, file, "--dry-run") == 0
    sentence = "columns not used: {}; --map param:NAME=COLUMN makes one a parameter\n"
    assert capsys.readouterr().out.endswith(sentence.format("size, mesh, size"))
    assert run(collector, file, "--dry-run", "--map", "param:size=size,param:mesh=mesh") == 0
    assert capsys.readouterr().out.endswith(sentence.format("size"))
    file.write_text("app,ranks,seconds,param:size\nfft,4,1,64\n")
    assert run(collector, file, "--dry-run") == 0
    assert "not used" not in capsys.readouterr().out
    file.write_text("JobID|JobName|State|Elapsed|NTasks|Comment\n1.0|fft|COMPLETED|60|4|big\n")
    assert run(collector, file, "--dry-run") == 0
    assert "columns not used: Comment; " in capsys.readouterr().out


def test_formats_are_detected_also_in_compressed_files(collector, tmp_path, capsys):
    account, log = tmp_path / "account.txt", tmp_path / "log.swf.gz"
    account.write_text(SACCT)
    log.write_bytes(gzip.compress(SWF.encode()))
    assert (run(collector, account), run(collector, log)) == (65, 65)
    jobs, _ = stored(collector)
    assert set(jobs) == {"lab/4711.0.0", "lab/4713_7.0.job", "lab/1.0.job"}


def test_a_dry_run_sends_nothing(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    file.write_text(csv_of(3))
    assert run(collector, file, "--dry-run") == 0
    assert capsys.readouterr().out.startswith("3 runs found, nothing sent\n")
    assert stored(collector) == ([], [])


def test_an_unreadable_file_is_one_line_and_status_65(collector, tmp_path, capsys):
    empty, wrong, cut = tmp_path / "e.csv", tmp_path / "w.csv", tmp_path / "c.csv.gz"
    spoiled = tmp_path / "s.csv.gz"
    whole = bytearray(gzip.compress(csv_of(2000).encode()))
    whole[10:40] = bytes(30)
    spoiled.write_bytes(whole)
    empty.write_text("")
    wrong.write_text("a,b\n1,2\n")
    cut.write_bytes(gzip.compress(csv_of(2000).encode())[:-50])
    assert run(collector, tmp_path / "none.csv") == 65
    assert run(collector, empty) == 65
    assert run(collector, wrong) == 65
    assert run(collector, wrong, "--map", "app=c") == 65
    assert [run(collector, one) for one in (cut, spoiled)] == [65, 65]
    assert capsys.readouterr().err.splitlines() == [
        f"barograph import: {tmp_path}/none.csv: No such file or directory",
        f"barograph import: {empty}: the file is empty",
        f"barograph import: {wrong}: no column for app, expected --map app=COLUMN, a column of: a, b",
        f"barograph import: {wrong}: app=c: there is no column 'c', expected one of a, b",
        f"barograph import: {cut}: Compressed file ended before the end-of-stream marker was reached",
        f"barograph import: {spoiled}: Error -3 while decompressing data: invalid stored block lengths",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            b"\x28\xb5\x2f\xfd....",
            "the file is compressed by zstd, expected text, or text compressed by gzip, bzip2 or xz",
        ),
        ("app,ranks".encode("utf-16"), "the file is UTF-16, expected text"),
        (b'{"jobs": []}\n', "the file looks like JSON, expected output of `sacct -P`, SWF or CSV"),
        (b"05/04/2026 13:30:00;E;7.server;user=ann\n", "the file looks like an accounting log of PBS"),
        (b'"JOB_FINISH" "10.108" 1736640000\n', "the file looks like an accounting log of LSF"),
        (b"all.q:node1:" + b"0:" * 50 + b"\n", "the file looks like an accounting log of Grid Engine"),
        (b"JobID           JobName  Partition\n", "the file looks like output of `sacct` without -P"),
        (SWF.replace("-1 1 3 1 7", "-1 0 3 1 7").encode(), "no run that ended well in the file, expected at least one"),
    ],
)
def test_a_file_of_another_format_or_without_a_run_is_refused(collector, tmp_path, capsys, content, reason):
    file = tmp_path / "history"
    file.write_bytes(content)
    assert run(collector, file) == 65
    assert reason in capsys.readouterr().err


def test_compressed_files_are_read_whatever_their_names_and_runs_of_unknown_state_on_request(
    collector, tmp_path, capsys
):
    file = tmp_path / "history.swf"
    for module in (gzip, bz2, lzma):
        file.write_bytes(module.compress(SWF.replace("-1 0 3 1 7", "-1 -1 3 1 7").encode()))
        assert run(collector, file) == 65
        assert "the state of 1 run is unknown: --assume-completed" in capsys.readouterr().out
    assert run(collector, file, "--assume-completed") == 65
    assert capsys.readouterr().out.startswith("1 run added, 1 known already\n")


def test_standard_input_is_read_and_invalid_bytes_affect_only_their_line(collector):
    command = [sys.executable, "-m", "barograph", "import", "-", "--collector", collector.endpoint]
    account = csv_of(2).encode() + b"\xff,\xff,1\n" + b"fft,4,9\n"
    done = subprocess.run(command, input=account, capture_output=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.stdout == b"3 runs added, 0 known already\nnot learned: none\n1 bad line\n", done.stderr


def test_an_import_without_a_collector_fails_after_a_timeout(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 0.05)
    file = tmp_path / "h.csv"
    file.write_text(csv_of(3))
    assert main(["import", str(file), "--collector", "tcp://127.0.0.1:1"]) == 69
    assert (
        "no answer from the collector at tcp://127.0.0.1:1 within 0.05 s; 0 runs added by then"
        in capsys.readouterr().err
    )


def test_a_run_refused_by_the_collector_is_a_bad_line(collector):
    ((record,), _, _) = split(read_table(lines("app,ranks,seconds\nfft,4,1\n"), {}, "lab", ""))
    record.rows["jobs"]["user"] = "not a name"
    with Delivery(collector.endpoint) as delivery:
        list(delivery.send(iter([record])))
        ((line, reason),) = delivery.refused
    assert (line, delivery.added) == (2, 0)
    assert reason.startswith("column 'user' is 'not a name'")
    assert not math.isnan(record.seconds)


def test_a_collector_of_another_protocol_version_is_an_error(collector, monkeypatch):
    monkeypatch.setattr("barograph_collector.net.receiver.wire.VERSION", 2)
    records, _, _ = split(read_table(lines(csv_of(1)), {}, "lab", ""))
    with (
        Delivery(collector.endpoint) as delivery,
        pytest.raises(CollectorUnreachable, match="speaks another protocol: version is 1"),
    ):
        list(delivery.send(iter(records)))


@pytest.mark.parametrize(
    ("role", "refusal"),
    [
        ("importer", "no answer from the collector"),
        ("reader", "role is reader, expected agent, importer, writer or editor"),
    ],
    ids=["revoked", "another role"],
)
def test_an_import_with_a_key_that_is_not_admitted_fails(tmp_path, monkeypatch, role, refusal):
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 1.0)
    directory = tmp_path / "keys"
    keys.init(directory)
    key = load(keys.add(directory, role, "one"))
    records, _, _ = split(read_table(lines(csv_of(1)), {}, "lab", ""))
    if role == "importer":
        keys.revoke(directory, "one")
    with (
        collector_on(tmp_path / "log.duckdb", keyring=keys.Keyring(directory)) as collector,
        Delivery(collector.endpoint, key) as delivery,
    ):
        if role == "importer":
            wait_until(lambda: collector.counters.rejected["key"], "the key is refused")
        with pytest.raises(CollectorUnreachable, match=refusal):
            list(delivery.send(iter(records)))
