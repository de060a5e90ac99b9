"""Options of the test suite, and what is made once for all of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.lake import catalog
from barograph_collector.server import Collector
from helpers.log import collector_on
from helpers.once import once
from helpers.packages import make_dist
from helpers.service import Oracle, Service

# Threads that wait for each other by spinning take ten times as long where other tests run beside them. These
# libraries read it when they are loaded, which is after this file.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

# How long an example takes tells how busy the machine is, and no more.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")

# The signature of DuckLake, 36 MB, takes DuckDB longer than most tests. In processes of their own it is checked.
catalog.CONFIG["allow_unsigned_extensions"] = True


LONGEST = [
    *("deploy/test_docs_laboratory.py", "agent/test_iterations.py", "agent/test_shim.py", "deploy/test_packaging.py"),
    *("collector/test_lake_store.py", "deploy/test_docs_commands.py", "cluster/test_run.py", "cluster/test_cluster.py"),
    *("collector/test_next_duckdb.py", "deploy/test_slurm.py", "deploy/test_debian.py", "cluster/test_slurm.py"),
    *("agent/test_run.py", "agent/test_aarch64.py", "deploy/test_report.py", "deploy/test_feature_loop.py"),
    *("deploy/test_up.py", "collector/test_lake_server.py", "collector/test_archive.py", "deploy/test_slurm_guide.py"),
    *("deploy/test_alerting.py", "deploy/test_loop.py", "deploy/test_dashboards.py", "collector/test_lake.py"),
    *("collector/test_erase.py", "agent/test_companion.py", "deploy/test_work.py"),
    *("laboratory/test_backtest_limits.py", "collector/test_from_lake.py", "alerts/test_suspects.py"),
    *("simulation/test_simulation.py",),
    *("laboratory/studies/test_study.py", "laboratory/studies/test_runtime_command.py", "laboratory/test_replay.py"),
]
"""Files that take longest, which begin first: the last one would run alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if absent := [name for name in LONGEST if not (here / name).exists()]:
        raise pytest.UsageError(f"tests/conftest.py: LONGEST has {absent[0]!r}, which is no file")
    for item in items:
        if item.path.is_relative_to(here / "laboratory"):
            item.add_marker("laboratory")
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="write the tables of docs/ that tests compare with")


@pytest.fixture(autouse=True)
def _quarantine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A defect that quarantine would hide fails the test, unless that is what is tested."""
    found: list[Exception] = []
    add = Quarantine.add

    def note(self: Quarantine, place: str, job: str, error: Exception) -> None:
        found.append(error)
        add(self, place, job, error)

    monkeypatch.setattr(Quarantine, "add", note)
    yield
    if found and "quarantine" not in request.keywords:
        raise AssertionError(f"{len(found)} exceptions ended in quarantine") from found[0]


@pytest.fixture(autouse=True)
def _closed_logs() -> None:
    """Daemons that ran in this process have logged to standard error as it was captured then."""
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if not getattr(getattr(one, "stream", None), "closed", False)]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` has filled."""
    return once(tmp_path_factory, "dist", make_dist)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with collector_on(tmp_path / "log.duckdb") as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # Without a verdict a run would wait for it.
    with Service(tmp_path_factory.mktemp("service")) as service, Oracle(service.endpoint):
        yield service
