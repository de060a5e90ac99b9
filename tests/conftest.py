"""Options of the test suite, and what is made once for all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.lake import catalog
from helpers.packages import make_dist

# Threads that wait for each other by spinning take ten times as long where other tests run beside them. These
# libraries read it when they are loaded, which is after this file.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

# How long an example takes tells how busy the machine is, and no more.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")

# The signature of DuckLake, 36 MB, takes DuckDB longer than most tests. In processes of their own it is checked.
catalog.CONFIG["allow_unsigned_extensions"] = True


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


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` has filled."""
    return make_dist(tmp_path_factory.mktemp("dist"))
