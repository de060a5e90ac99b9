"""`barograph backtest scaling --parts` on generated files, and `barograph backtest parts`."""

import json

import pytest

from barograph.cli import main
from barograph_collector.daemon.service import Exit

SCALES = (1, 2, 4, 8, 16, 32, 64)
PARTS = {"work": lambda p: 100 / p, "halo": lambda p: 20 / p**0.66, "wait": lambda p: 0.3 * p**0.4}


def write(path, total="total", nested=True, runs=1):
    rows = ["app,ranks,region,seconds"]
    for app in ("a", "b"):
        for p in SCALES:
            for _ in range(runs):
                seconds = {name: law(p) for name, law in PARTS.items()}
                if nested:
                    seconds["step"] = seconds["work"] + seconds["halo"]
                if total:
                    seconds[total] = sum(PARTS[name](p) for name in PARTS)
                rows += [f"{app},{p},{name},{one}" for name, one in seconds.items()]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def run(capsys, file, *arguments):
    columns = ["--time", "seconds", "--ranks", "ranks", "--by", "app", "--json", "--models", "amdahl-log,barograph"]
    status = main(["backtest", "scaling", file, *columns, *arguments])
    printed = capsys.readouterr()
    return status, json.loads(printed.out) if printed.out else None, printed.err


def test_parts_are_better_than_laws_of_the_total_and_what_decides_is_named(tmp_path, capsys):
    status, found, noted = run(capsys, write(tmp_path / "r.csv"), "--parts", "region")
    assert status == Exit.OK
    assert "is 'total'" in noted
    errors = {row["model"]: row["median_ape"] for row in found["summary"]}
    assert errors["parts"] < min(errors["amdahl-log"], errors["barograph"])
    assert {row["ranks"] for row in found["parts"]} == {64}
    assert set(found["parts"][0]["parts"]) == {"work", "halo", "wait"}
    assert sum(found["parts"][0]["parts"].values()) == pytest.approx(found["parts"][0]["seconds"])


def test_without_a_total_it_is_the_sum_and_repeats_follow_each_other(tmp_path, capsys):
    _, found, noted = run(capsys, write(tmp_path / "r.csv", total=None, nested=False, runs=2), "--parts", "region")
    assert "the sum of all regions" in noted
    assert {(row["learned"], row["scored"]) for row in found["workloads"]} == {(8, 6)}


def test_the_name_of_the_total_can_be_given(tmp_path, capsys):
    file = write(tmp_path / "r.csv", total="xyz")
    _, found, noted = run(capsys, file, "--parts", "region", "--total", "xyz")
    assert set(found["parts"][0]["parts"]) == {"work", "halo", "wait"}
    assert "the total of" not in noted
    status, _, noted = run(capsys, file, "--parts", "region", "--total", "abc")
    assert status != Exit.OK
    assert "no run has the region 'abc'" in noted


def test_a_region_twice_in_a_run_is_an_error(tmp_path, capsys):
    file = tmp_path / "r.csv"
    file.write_text("app,job,ranks,region,seconds\na,1,2,work,1\na,1,2,work,2\n")
    status, _, noted = run(capsys, str(file), "--parts", "region", "--run", "job")
    assert status != Exit.OK
    assert "line 3: region 'work' is in this run already" in noted


def test_regions_can_be_columns_and_the_total_a_column(tmp_path, capsys):
    wide, long = tmp_path / "wide.csv", tmp_path / "long.csv"
    rows = [(p, *(law(p) for law in PARTS.values()), sum(law(p) for law in PARTS.values())) for p in SCALES]
    wide.write_text("app,ranks,work,halo,wait,seconds\n" + "".join(f"a,{','.join(map(str, row))}\n" for row in rows))
    lines = [f"a,{p},{name},{law(p)},{total}" for p, *_, total in rows for name, law in PARTS.items()]
    long.write_text("\n".join(["app,ranks,region,seconds,elapsed", *lines]) + "\n")
    _, one, _ = run(capsys, str(wide), "--parts", "work,halo,wait")
    _, two, _ = run(capsys, str(long), "--parts", "region", "--total", "elapsed")
    assert set(one["parts"][0]["parts"]) == {"work", "halo", "wait"}
    assert one["parts"] == two["parts"]


def test_options_of_regions_need_the_column(tmp_path, capsys):
    status, _, noted = run(capsys, write(tmp_path / "r.csv"), "--total", "total")
    assert status != Exit.OK
    assert "--total needs --parts" in noted


def study(capsys, *arguments):
    status = main(["backtest", "parts", "--scenarios", "1", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_study_of_phases_follows_from_its_seed_and_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "parts.png"
    status, first, _ = study(capsys, "--seed", "4", "--json", "--plot", str(picture))
    assert status == Exit.OK
    found = json.loads(first)
    assert len(found["summary"]) == 27
    assert {row["model"] for row in found["predictions"]} == {"parts", "barograph", "amdahl-log"}
    assert picture.stat().st_size > 1000
    assert study(capsys, "--seed", "4", "--json")[1] == first


def test_noise_is_read_from_windows_and_from_sums_of_traces(tmp_path, capsys):
    windows = tmp_path / "windows.csv"
    windows.write_text("trace_no,window,sum_us\n" + "".join(f"1,{i},{i % 7}\n" for i in range(200)))
    traces = tmp_path / "traces.csv"
    traces.write_text("trace_no,mean_sum_us_10ms,p99_sum_us,max_sum_us\n1,50,200,900\n")
    for file in (windows, traces):
        status, printed, _ = study(capsys, "--noise", str(file))
        assert status == Exit.OK
        assert "coverage of 95 %" in printed
    bad = tmp_path / "bad.csv"
    bad.write_text("trace_no,x\n1,2\n")
    status, _, noted = study(capsys, "--noise", str(bad))
    assert status != Exit.OK
    assert "neither column sum_us nor mean_sum_us_10ms" in noted
