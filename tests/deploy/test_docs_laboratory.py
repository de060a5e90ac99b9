"""The commands of the pages for performance engineers can be typed. They compute for longest, so they begin first."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.typed import LABORATORY, PAGES, name, type_page

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(LABORATORY)], ids=name)
def test_the_commands_of_a_page_can_be_typed(
    page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    type_page(page, tmp_path, tmp_path_factory)
