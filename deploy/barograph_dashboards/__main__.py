"""`python -m barograph_dashboards [DIR]`: writes the dashboards as JSON that Grafana provisions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from barograph_dashboards.board import dashboard

DASHBOARDS: Final = ("facility", "job", "application")
DIRECTORY: Final = Path(__file__).parents[1] / "grafana/dashboards"


def text(name: str) -> str:
    """A dashboard as deterministic JSON. Panels are numbered in order, so that links to a panel remain valid."""
    built = dashboard(Path(__file__).with_name(f"{name}.toml")).build()
    for number, panel in enumerate(built.panels or [], 1):
        panel.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(directory: Path) -> None:
    """Write all dashboards."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (directory / f"{name}.json").write_text(text(name))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY)
