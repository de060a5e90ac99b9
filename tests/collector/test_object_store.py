"""Places, credentials and settings of a lake in an object store, without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from barograph_agent.settings.sources import ConfigError, Configuration
from barograph_collector.settings import CollectorSettings
from barograph_collector.storage.days.data_path import split
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.days.object_store import Credentials, ObjectStore

FILE = "[default]\naws_access_key_id = key\naws_secret_access_key = hidden%s\n"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden"}


@pytest.mark.parametrize(
    "place", ["s3://", "s3://Up/x", "s3://a/x", "s3://hpc/../x y", "s3://hpc//x", "s3://hpc/'", "/lake"]
)
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="expected s3://BUCKET/PREFIX"):
        split(place)


def test_credentials_are_in_a_file_or_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(FILE % "\naws_session_token = t\nregion = eu-1\n[other]\naws_access_key_id = o")
    file.chmod(0o600)
    assert Credentials.find(file, {"AWS_REGION": "x"}) == ("key", "hidden", "t", "eu-1")
    assert Credentials.find(None, ENVIRONMENT | {"AWS_DEFAULT_REGION": "eu-2"}) == ("k", "hidden", "", "eu-2")
    assert Credentials.find(None, ENVIRONMENT).region == "us-east-1"


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (None, 0, "cannot read {}: No such file or directory"),
        (FILE % "", 0o640, "{} has mode 640, expected one that only its owner may read: chmod 600 {}"),
        ("aws_secret_access_key = hidden", 0o600, "{} has no credentials, expected [default] and lines as in KEY ="),
        ("[prod]\naws_secret_access_key = hidden", 0o600, "{} has no section [default]"),
        ("[default]\naws_secret_access_key = hidden", 0o600, "{} has no aws_access_key_id for the object store"),
        ("[default]\naws_access_key_id = x\naws_secret_access_key =", 0o600, "{} has no aws_secret_access_key for the"),
    ],
)
def test_a_file_without_credentials_is_one_line_without_the_secret(
    tmp_path: Path, content: str | None, mode: int, words: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(LakeError) as refusal:
        Credentials.find(file, ENVIRONMENT)
    assert str(refusal.value).startswith(words.replace("{}", str(file)))
    assert "hidden" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_credentials_of_the_environment_are_named() -> None:
    with pytest.raises(LakeError, match=r"^the environment has no AWS_ACCESS_KEY_ID .*lake_credentials"):
        ObjectStore("s3://hpc/lake", "")


def test_settings_of_an_object_store_are_checked() -> None:
    def settings(**given: str) -> CollectorSettings:
        given = {"state": "/nowhere", **given}
        return Configuration(CollectorSettings, given=given, environment={}, file=None, complete=True).settings

    assert settings(lake="s3://hpc/lake", lake_endpoint="https://s3.example.org").lake == "s3://hpc/lake"
    for name, value in (("lake_endpoint", "https://s3.example.org"), ("lake_credentials", "/keys")):
        with pytest.raises(ConfigError, match=f"{name}: expected lake with it, as s3://BUCKET/PREFIX"):
            settings(lake="/lake", **{name: value})
    for wrong in ("s3.example.org", "ftp://host", "http://host/path", "http://user:hidden@host"):
        with pytest.raises(ConfigError, match="expected http://HOST:PORT or https://HOST") as refusal:
            settings(lake="s3://hpc/lake", lake_endpoint=wrong)
        assert "hidden" not in str(refusal.value)
    with pytest.raises(ConfigError, match="is no place in an object store"):
        settings(lake="s3://HPC")
