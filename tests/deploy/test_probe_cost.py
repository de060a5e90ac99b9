"""`barograph features cost`: processor time and instructions of a command over those of another."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from barograph.cli import main
from barograph.lab.probe_cost import ProbeCost, median_text

WORK = "i=0; while [ $i -lt {rounds} ]; do i=$((i + 1)); done"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `plain`, `probed`, which works ten times as long, `bad`, and a valgrind that counts letters."""
    scripts = {
        "plain": WORK.format(rounds=20_000),
        "probed": f'echo "${{BAROGRAPH_FEATURES:-unset}}" >> {tmp_path}/seen\n{WORK.format(rounds=200_000)}',
        "bad": "echo broken; exit 3",
        "valgrind": 'for last; do :; done; echo "== Collected : $(printf %s "$last" | wc -c)000"',
    }
    for name, text in scripts.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_ratios_are_those_of_the_commands(commands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["features", "cost", "plain 1", "probed 123", "--pairs=3"]) == 0
    time, noise, instructions = capsys.readouterr().out.splitlines()
    number = r"[\d.e+-]+"
    assert re.fullmatch(rf"processor time +{number} \({number} to {number} of 3\)", time)
    assert float(time.split()[2]) > 2
    assert noise.startswith("without any probe ")
    assert instructions.split() == ["instructions", "3"]
    folders = (commands / "seen").read_text().split()
    assert len(set(folders)) == 3
    assert not any(Path(one).exists() for one in folders)


def test_probes_may_have_no_folder(commands: Path) -> None:
    ProbeCost("plain", "probed", features=False).seconds(2)
    assert (commands / "seen").read_text().split() == ["unset"] * 2


def test_without_valgrind_there_are_no_instructions(
    commands: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (commands / "valgrind").unlink()
    (commands / "bin").mkdir()
    (commands / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", f"{commands}:{commands}/bin")
    assert main(["features", "cost", "plain", "plain", "--pairs=1"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split(maxsplit=1) == ["instructions", "- (needs valgrind)"]


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ("nowhere 3", "the program without probes is ['nowhere'], expected a command that can be run"),
        ("", "the program without probes is [], expected a command that can be run"),
        ("bad 1", "bad 1 ended with status 3: broken"),
    ],
)
def test_a_command_that_cannot_be_measured_is_an_error(
    commands: Path, plain: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["features", "cost", plain, "probed"]) == 65
    assert text in capsys.readouterr().err


def test_medians_have_their_range() -> None:
    assert median_text([1.0, 3.0]) == "2 (1 to 3 of 2)"
