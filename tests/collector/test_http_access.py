"""Viewers: tokens of operators and users."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.cli import main as barograph
from barograph_collector.auth import http_access, keys
from barograph_collector.auth.http_access import ANYBODY, Access, Viewer


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    keys.init(tmp_path / "keys")
    return tmp_path / "keys"


def token(path: Path) -> str:
    return path.read_text().strip()


def test_a_viewer_is_valid_from_add_to_revoke(directory: Path) -> None:
    olga = token(http_access.add(directory, "operator", "olga"))
    known = Access.read(directory / http_access.VIEWERS)
    ada = token(http_access.add(directory, "user", "ada"))
    assert known.authenticate(f"Bearer {olga}") == Viewer("olga", operator=True)
    assert known.authenticate(f"Bearer {ada}") is None
    assert known.refresh()
    assert not known.refresh()
    assert known.authenticate(f"bearer  {ada}") == known.authenticate(cookie=f"theme=dark; {http_access.COOKIE}={ada}")
    assert known.authenticate(cookie=f"{http_access.COOKIE}={ada}") == Viewer("ada", operator=False)
    assert http_access.revoke(directory, "ada") is not None
    assert not (directory / "ada.token").exists()
    assert known.refresh()
    assert known.authenticate(f"Bearer {ada}") is None


def test_a_user_sees_own_jobs_and_an_operator_all() -> None:
    assert Viewer("ada", operator=False).may_see("ada")
    assert not Viewer("ada", operator=False).may_see("bob")
    assert not Viewer("", operator=False).may_see("")
    assert Viewer("olga", operator=True).may_see("bob")
    assert ANYBODY.may_see("bob")


@given(st.text(), st.text())
def test_no_other_headers_authenticate_a_viewer(authorization: str, cookie: str) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(msgspec.json.encode([http_access.TokenEntry("olga", "operator", "0" * 64, 0.0)]))
        known = Access.read(Path(file.name))
    assert known.authenticate(authorization, cookie) is None
    assert known.authenticate(f"Bearer {authorization}", cookie) is None
    assert known.authenticate("", f"{http_access.COOKIE}={cookie}") is None


def test_the_file_contains_no_token_and_only_its_owner_can_read_it(directory: Path) -> None:
    path = http_access.add(directory, "operator", "olga")
    viewers = directory / http_access.VIEWERS
    assert token(path) not in viewers.read_text()
    assert {stat.S_IMODE(one.stat().st_mode) for one in (path, viewers)} == {0o600}


def test_a_damaged_file_is_named_and_changes_nothing(directory: Path) -> None:
    olga = token(http_access.add(directory, "operator", "olga"))
    known = Access.read(directory / http_access.VIEWERS)
    (directory / http_access.VIEWERS).write_text("[{}]")
    with pytest.raises(keys.KeysError, match=r"cannot read .*viewers\.json: .*missing required field `name`"):
        known.refresh()
    assert known.authenticate(f"Bearer {olga}") is not None


def test_the_command_adds_lists_and_revokes_viewers_beside_clients(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--keys", str(directory), "add", "user", "ada"]) == 0
    assert main(["--keys", str(directory), "add", "reader", "page"]) == 0
    secret = token(directory / "ada.token")
    assert main(["--keys", str(directory), "list"]) == 0
    output = capsys.readouterr().out
    assert secret not in output
    assert "the token of user ada" in output
    assert "a token" in output
    assert main(["--keys", str(directory), "revoke", "ada"]) == 0
    assert "user ada is revoked" in capsys.readouterr().out
    assert main(["--keys", str(directory), "add", "user", "../x"]) == 73
    assert "name is '../x', expected " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("login1", False)],
)
def test_loopback_addresses_are_recognised(host: str, loopback: bool) -> None:
    assert http_access.is_loopback(host) is loopback


def main(words: list[str]) -> int:
    return barograph(["keys", *words])
