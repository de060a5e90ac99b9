"""The key directory: clients, and file modes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from barograph.cli import main as barograph
from barograph_agent.deliver import keys as client_keys
from barograph_collector.auth import keys


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    keys.init(tmp_path / "keys")
    return tmp_path / "keys"


def test_a_client_is_valid_from_add_to_revoke(directory: Path) -> None:
    ring = keys.Keyring(directory)
    key = client_keys.load(keys.add(directory, "writer", "modeler"))
    assert ring.get(key.public) is None
    assert ring.refresh()
    assert not ring.refresh()
    client = ring.get(key.public)
    assert client is not None
    assert (client.name, client.role) == ("modeler", "writer")
    assert key.collector == ring.collector.public
    keys.revoke(directory, "modeler")
    assert ring.refresh()
    assert ring.get(key.public) is None
    assert not (directory / "modeler.key").exists()


def test_only_the_owner_can_read_the_files_and_no_temporary_file_remains(directory: Path) -> None:
    keys.add(directory, "agent", "nodes")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {"collector.json": 0o600, "clients.json": 0o600, "nodes.key": 0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_an_unreadable_client_list_keeps_the_former_clients(directory: Path) -> None:
    key = client_keys.load(keys.add(directory, "reader", "staff"))
    ring = keys.Keyring(directory)
    (directory / "clients.json").write_text("[{}]")
    with pytest.raises(keys.KeysError, match=r"cannot read .*clients.json: Object missing required field `name`"):
        ring.refresh()
    assert ring.get(key.public) is not None


def test_only_key_files_of_agents_may_be_readable_by_others(directory: Path) -> None:
    agent, staff = keys.add(directory, "agent", "nodes"), keys.add(directory, "reader", "staff")
    for path in (agent, staff):
        path.chmod(0o644)
    assert client_keys.from_environment({"BAROGRAPH_KEY": str(agent)}) is not None
    assert client_keys.from_environment({}) is None
    with pytest.raises(client_keys.KeyFileError) as refusal:
        client_keys.from_environment({"BAROGRAPH_KEY": str(staff)})
    assert str(refusal.value) == f"key file {staff} has mode 644, expected 600: it is a reader's"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory, expected one from `barograph keys add`"),
        ("", "Input data was truncated, expected one from `barograph keys add`"),
        ("\udcff", "expected one from `barograph keys add`"),
        ('{"name": "a", "role": "king", "public": "", "secret": "", "collector": ""}', "Invalid enum value 'king'"),
        ('{"name": "a", "role": "agent", "public": "", "secret": "", "collector": ""}', "expected 40 characters each"),
    ],
)
def test_an_invalid_key_file_is_named_with_what_was_expected(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "a.key"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(client_keys.KeyFileError) as refusal:
        client_keys.load(path)
    assert str(refusal.value).startswith(f"key file {path}")
    assert words in str(refusal.value)


def test_the_command_prints_its_changes_and_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "keys"
    token = tmp_path / "4711.token"
    where = ["--keys", str(directory)]
    for words in (
        ["init"],
        ["add", "agent", "nodes"],
        ["list"],
        ["token", "lab/4711", "alice", "--output", str(token)],
    ):
        assert main([*where, *words]) == 0
    secret = client_keys.load(directory / "nodes.key").secret
    assert main([*where, "revoke", "nodes"]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    assert [line.partition(":")[0] for line in out.splitlines()[:2]] == [str(directory), str(directory / "nodes.key")]
    assert "nodes │ agent" in out
    held = keys.load_collector(directory)
    assert not [word for word in (secret, held.secret, held.token_secret) if word in out]
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["init"], "key directory DIR has keys already, expected none: every client holds the old one"),
        (["add", "reader", "../x"], "name is '../x', expected an identifier of 1-128 characters from A-Z a-z 0-9"),
        (["add", "reader", "staff"], "name is 'staff', expected one that is not in use: revoke it first"),
        (["revoke", "nobody"], "name is 'nobody', expected one of: staff"),
        (["token", "lab/1", "alice", "--output", "/nonexistent/x"], "cannot write /nonexistent/x: No such file"),
    ],
)
def test_an_invalid_change_is_one_line_and_status_73(
    directory: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys.add(directory, "reader", "staff")
    assert main(["--keys", str(directory), *words]) == 73
    assert capsys.readouterr().err.startswith(f"barograph keys: {text.replace('DIR', str(directory))}")


def test_a_collector_key_that_others_can_read_is_refused(directory: Path) -> None:
    (directory / "collector.json").chmod(0o640)
    with pytest.raises(keys.KeysError, match=r"collector.json has mode 640, expected 600"):
        keys.Keyring(directory)


def main(words: list[str]) -> int:
    return barograph(["keys", *words])
