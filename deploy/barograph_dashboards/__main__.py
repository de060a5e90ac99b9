"""`python -m barograph_dashboards [DIR]`: writes the dashboards as Grafana provisions them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from barograph_dashboards.application import application
from barograph_dashboards.facility import facility
from barograph_dashboards.job import job

DASHBOARDS: Final = {"facility": facility, "job": job, "application": application}
DIRECTORY: Final = Path(__file__).parents[1] / "grafana/dashboards"


def text(dashboard: Dashboard) -> str:
    """The dashboard as JSON, the same for the same dashboard. Panels are numbered, so that links to one stay."""
    built = dashboard.build()
    for number, panel in enumerate(built.panels or [], 1):
        panel.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(directory: Path) -> None:
    """Write all dashboards."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in DASHBOARDS.items():
        (directory / f"{name}.json").write_text(text(make()))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY)
