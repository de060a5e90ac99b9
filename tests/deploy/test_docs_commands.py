"""Every command of the documentation can be typed: of all pages but those for performance engineers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.mpi import REPOSITORY
from helpers.typed import ELSEWHERE, LABORATORY, PAGES, commands, name, type_page

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.parametrize("page", [page for page in PAGES if not page.is_relative_to(LABORATORY)], ids=name)
def test_the_commands_of_a_page_can_be_typed(
    page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    type_page(page, tmp_path, tmp_path_factory)


def test_commands_typed_elsewhere_are_in_the_named_tests() -> None:
    lines = [line for page in PAGES for line in commands(page)]
    for pattern, where in ELSEWHERE.items():
        assert any(re.match(pattern, line) for line in lines), f"{pattern!r} is in no page any more"
        assert (REPOSITORY / where).exists(), where
