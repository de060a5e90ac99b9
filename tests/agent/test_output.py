"""The verdicts at the end of a batch job's output: which file that is, what is written, and what is never touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barograph_agent.sidecar.output import NoOutput, append, is_verdict_wanted, path_of
from barograph_agent.system.disk import DISK

PROLOG = {"SLURM_JOB_ID": "4711", "SLURM_JOB_USER": "ada", "SLURM_JOB_WORK_DIR": "/home/ada"}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("slurm-%j.out", "/home/ada/slurm-4711.out"),
        ("/scratch/%u/%x.%A_%a.%N", "/scratch/ada/heat.4710_3.n7"),
        ("100%%.out", "/home/ada/100%.out"),
        ("", None),
    ],
)
def test_the_file_has_the_name_that_slurm_gives_it(name, path):
    array = {"SLURM_ARRAY_JOB_ID": "4710", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_NAME": "heat"}
    found = path_of(PROLOG | array | {"SLURM_JOB_STDOUT": name}, "n7")
    assert found == (Path(path) if path else None)


@pytest.mark.parametrize("name", ["%J.out", "%t.out", "%4j.out", "out%", "%x.out", "a\\%j.out"])
def test_a_name_that_cannot_be_told_is_named(name):
    with pytest.raises(NoOutput, match="expected %A"):
        path_of(PROLOG | {"SLURM_JOB_STDOUT": name}, "n7")


def test_nothing_but_a_regular_file_of_the_user_is_written(tmp_path, monkeypatch):
    file, link, fifo = (tmp_path / name for name in ("out", "link", "fifo"))
    file.write_text("end\n")
    link.symlink_to(file)
    os.mkfifo(fifo)
    append(file, "verdict\n", DISK)
    for path in (link, fifo, tmp_path / "absent", tmp_path):
        with pytest.raises(OSError, match=str(path)):
            append(path, "verdict\n", DISK)
    append(Path("/dev/null"), "verdict\n", DISK)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    append(file, "verdict\n", DISK)
    assert file.read_text() == "end\nverdict\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "link", "out"]


@pytest.mark.parametrize(("text", "wanted"), [("verdict\n", True), ("\n", False), (None, False)])
def test_the_hook_marks_the_jobs_whose_verdict_is_wanted(tmp_path, text, wanted):
    active = tmp_path / "active"
    if text is not None:
        active.write_text(text)
    assert is_verdict_wanted(active, DISK) == wanted
