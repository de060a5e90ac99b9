"""Runs the examples in all docstrings."""

import doctest
import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = [path.parent for path in REPOSITORY.glob("*/barograph*/__init__.py")]
MODULES = sorted(
    ".".join(path.relative_to(package.parent).with_suffix("").parts)
    for package in PACKAGES
    for path in package.rglob("*.py")
    if ">>>" in path.read_text()
)


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_are_correct(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert found.failed == 0
