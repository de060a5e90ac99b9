"""The daemons that `barograph up` starts, by its options and the configuration."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from barograph.operate.up import ServicePlan, plan
from barograph_agent.settings.sources import ConfigError


def planned(environment: dict[str, str] | None = None, **options: Any) -> ServicePlan:
    names = (
        "config",
        "state",
        "port",
        "lake",
        "lake_endpoint",
        "lake_credentials",
        "catalog",
        "journal",
        "alpha",
        "margin",
        "window",
    )
    given = {**dict.fromkeys(names), "shards": 1, "state": Path("/s"), **options}
    return plan(argparse.Namespace(**given), environment or {})


def options_of(found: ServicePlan, name: str) -> set[str]:
    (daemon,) = (one for one in found.daemons if one.name == name)
    return {word for word in daemon.command if word.startswith("--")}


def test_one_collector_has_the_daemons_that_it_always_had() -> None:
    found = planned(port=8000, lake="/lake")
    assert [one.name for one in found.daemons] == ["collector", "modeler", "alerts", "page"]
    listens = "--listen=tcp://127.0.0.1:8000"
    assert options_of(found, "collector") == {"--metrics=127.0.0.1:8001", "--state=/s", listens, "--lake=/lake"}
    assert options_of(found, "alerts") == {"--metrics=127.0.0.1:8003", "--collector=tcp://127.0.0.1:8000"}
    assert options_of(found, "page") == {
        "--listen=127.0.0.1:8004",
        "--collector=tcp://127.0.0.1:8000",
        "--collector-metrics=http://127.0.0.1:8001",
        "--modeler=http://127.0.0.1:8002",
    }
    assert (found.endpoint, found.page) == ("tcp://127.0.0.1:8000", "http://127.0.0.1:8004")


def test_each_shard_is_a_whole_service_with_a_log_below_and_ports_above_and_there_is_one_page() -> None:
    found = planned(port=8000, shards=3, lake="/lake")
    names = [f"{name}{number}" for number in ("", "2", "3") for name in ("collector", "modeler", "alerts")]
    assert [one.name for one in found.daemons] == [*names, "page"]
    every = "tcp://127.0.0.1:8000,tcp://127.0.0.1:8010,tcp://127.0.0.1:8020"
    assert found.endpoint == every
    listens = "--listen=tcp://127.0.0.1:8020"
    assert options_of(found, "collector3") == {"--metrics=127.0.0.1:8021", "--state=/s/shard3", listens, "--lake=/lake"}
    follows = "--collector=tcp://127.0.0.1:8020"
    assert options_of(found, "modeler3") == {"--metrics=127.0.0.1:8022", "--state=/s/shard3", follows}
    assert options_of(found, "alerts3") == {"--metrics=127.0.0.1:8023", follows}
    assert options_of(found, "page") == {
        "--listen=127.0.0.1:8004",
        f"--collector={every}",
        "--collector-metrics=http://127.0.0.1:8001,http://127.0.0.1:8011,http://127.0.0.1:8021",
        "--modeler=http://127.0.0.1:8002,http://127.0.0.1:8012,http://127.0.0.1:8022",
    }
    assert found.page == "http://127.0.0.1:8004"


def test_the_configuration_has_the_addresses_of_the_first_and_the_environment_may_have_a_list(tmp_path: Path) -> None:
    file = tmp_path / "barograph.toml"
    file.write_text(
        '[collector]\nlisten = "tcp://[::1]:9000"\nmetrics = "[::1]:9100"\n[page]\nlisten = "127.0.0.1:9200"\n'
        '[modeler]\nmetrics = "127.0.0.1:9300"\n[alerts]\nmetrics = "127.0.0.1:9400"\n'
    )
    found = planned({"BAROGRAPH_COLLECTOR": "tcp://a:1,tcp://b:1"}, config=file, shards=2)
    assert found.endpoint == "tcp://[::1]:9000,tcp://[::1]:9010"
    assert options_of(found, "collector2") >= {"--listen=tcp://[::1]:9010", "--metrics=[::1]:9110"}
    assert options_of(found, "page") >= {
        f"--collector={found.endpoint}",
        "--collector-metrics=http://[::1]:9100,http://[::1]:9110",
        "--modeler=http://127.0.0.1:9300,http://127.0.0.1:9310",
    }
    assert found.page == "http://127.0.0.1:9200"


def test_each_collector_has_a_journal_of_its_own() -> None:
    found = planned(port=8000, shards=2, lake="/lake", journal=Path("/nfs/journals"))
    assert "--journal=/nfs/journals/shard1" in options_of(found, "collector")
    assert "--journal=/nfs/journals/shard2" in options_of(found, "collector2")


def test_ports_beyond_the_last_are_an_error() -> None:
    with pytest.raises(ConfigError, match="shards: port 65540 for shard 2, expected 11 to 65535"):
        planned(port=65530, shards=2)
