"""Options of the test suite, and what is made once for all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from helpers.packages import make_dist

# How long an example takes tells how busy the machine is, and no more.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="write the tables of docs/ that tests compare with")


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` has filled."""
    return make_dist(tmp_path_factory.mktemp("dist"))
