"""A site's rules: names of executables, and parameters from command lines."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from barograph_agent.job.identity import Job
from barograph_agent.job.rules import MAX_VALUE, Findings, Param, ParamRule, Rules, RulesError, apply, read

SITE = r"""
[[app]]
match = "/lammps[^/]*/"
name = "lammps"

[[app]]
match = "^train$"
name = "bert"

[[param]]
app = "lammps"
argv = '-var x (\S+)'
name = "x"

[[param]]
argv = '--input[= ](\S+)'
name = "input"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(SITE)
    return path


def job(app: str = "guess", *, guessed: bool = True, **params: str) -> Job:
    return Job("lab", "1", 0, "0", "ada", "n1", app, params, guessed)


def test_rules_give_names_and_parameters_and_nothing_else_is_stored(path: Path) -> None:
    command = [
        "mpiexec",
        "lmp",
        "-var",
        "x",
        "4",
        "-var",
        "y",
        "5",
        "--input=melt.in",
        "--token",
        "s3cr3t",
        "-in",
        "secret",
    ]
    found = apply(read(path), command)
    assert "s3cr3t" not in (kept := msgspec.json.encode(found).decode())
    assert "-in secret" not in kept
    settled = found.apply_to(job(), "/opt/lammps-2025/bin/lmp")
    assert (settled.app, settled.params) == ("lammps", {"x": "4", "input": "melt.in"})
    # A rule for one application does not apply to another, and the user's values take precedence.
    assert found.apply_to(job(), "/opt/bin/xhpcg").params == {"input": "melt.in"}
    assert found.apply_to(job(x="9"), "/opt/lammps/bin/lmp").params == {"x": "9", "input": "melt.in"}


def test_a_given_name_is_kept_and_a_script_is_matched_by_its_name(path: Path) -> None:
    found = apply(read(path), ["python", "train.py"])
    assert found.apply_to(job("mine", guessed=False), "/opt/lammps/bin/lmp").app == "mine"
    assert found.apply_to(job("train"), "/usr/bin/python3.11").app == "bert"
    assert found.apply_to(job("other"), "/usr/bin/python3.11").app == "other"
    assert Findings().apply_to(job(), "/opt/bin/xhpcg").app == "xhpcg"


def test_the_first_rule_for_a_name_applies_and_long_values_are_truncated(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text("[[param]]\nargv='a=(.*)'\nname='a'\n[[param]]\nargv='b=(.*)'\nname='a'\n")
    assert apply(read(path), ["b=2", "a=" + "x" * 999]).apply_to(job(), "").params == {"a": "x" * MAX_VALUE}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[app]]\nmatch=", "Invalid value (at end of document)"),
        ("[[app]]\nmatch='('\nname='a'\n", "app rule '(': missing ), unterminated subpattern at position 0"),
        ("[[app]]\nmatch='a'\nname='a b'\n", "Expected `str` matching regex"),
        ("[[app]]\nmatch='a'\n", "Object missing required field `name` - at `$.app[0]`"),
        ("[[apps]]\nmatch='a'\nname='a'\n", "Object contains unknown field `apps`"),
        ("[[param]]\nargv='a'\nname='a'\n", "param rule 'a' has no group, expected one around the value"),
    ],
)
def test_invalid_rules_are_an_error_that_names_the_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(RulesError) as raised:
        read(path)
    assert str(raised.value).startswith(f"rules {path}: {words}")
    assert "\n" not in str(raised.value)


def test_missing_or_undecodable_rules_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, words in [("none", "No such file or directory, expected rules in TOML"), ("binary", "'utf-8' codec")]:
        with pytest.raises(RulesError, match=words):
            read(tmp_path / name)


def test_expressions_are_limited_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph_agent.job.rules.MAX_SEARCH_SECONDS", 0.05)
    path = tmp_path / "rules.toml"
    path.write_text("[[param]]\nargv='((a+)+)b'\nname='a'\n")
    began = time.process_time()
    with pytest.raises(RulesError, match="expected simpler expressions"):
        apply(read(path), ["a" * 60])
    assert time.process_time() - began < 30  # unlimited, it would take 2^60 steps


def test_a_value_that_is_not_utf_8_is_stored_with_question_marks() -> None:
    found = apply(Rules(param=[ParamRule(argv="-n (.*)", name="n")]), ["./app", "-n", os.fsdecode(b"a\xff\xfeb")])
    assert found.params == [Param("", "n", "a??b")]
    assert msgspec.json.encode(found)
