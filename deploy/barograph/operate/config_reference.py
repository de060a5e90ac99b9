"""Generates the section on the configuration file in docs/reference/settings.md from the settings structs.

`python -m barograph.operate.config_reference docs/reference/settings.md` updates the page in place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barograph.operate.config import SECTIONS
from barograph_agent.settings.setting import Section, declared

HEADING: Final = "## Configuration file\n"
_HEAD: Final = """\
One section for each table of `/etc/barograph/barograph.toml`, written by
`python -m barograph.operate.config_reference` from the structs that the daemons read the file with.
[How to use the file](../operator/running.md#configuration).

*reload*: a daemon applies a new value on SIGHUP. All other keys need a restart.
"""
_TEXTS: Final = {
    "collector": "Each key is an option of [`barograph collector`](#barograph-collector) too, with hyphens.",
    "modeler": "Each key is an option of [`barograph modeler`](#barograph-modeler) too.",
    "alerts": "Each key is an option of [`barograph alerts`](#barograph-alerts) too.",
    "page": "Each key is an option of [`barograph page`](#barograph-page) too.",
    "agent": """\
Read on compute nodes by `barograph run`, `spool`, `record` and `doctor`, by the hooks' sidecars, and for the
collector's address by all commands that connect to it. The environment variables work without a file.
`BAROGRAPH_COLLECTOR` and `BAROGRAPH_KEY` are read by every client, the daemons included.""",
}
_MORE: Final = {
    ("collector", "keys"): "Nobody else can connect ([keys](../operator/keys.md)).",
    ("collector", "rate"): "Ten times as many may come at once.",
    ("collector", "keep_days"): "[Retention](../operator/sizing.md#retention).",
    ("collector", "lake_period"): "[When rows arrive](../operator/lake.md#when-rows-arrive).",
    ("collector", "lake_keep"): "[How long a day is kept](../operator/lake.md#how-long-a-day-is-kept).",
    ("collector", "journal"): "[A journal apart](../operator/recovery.md#a-journal-apart).",
    ("collector", "hot_days"): "[Where a day is](../operator/lake.md#where-a-day-is).",
    ("collector", "metrics"): "Read-only, plain HTTP, no password.",
    ("modeler", "access"): "[Tokens](../operator/privacy.md#tokens).",
    ("modeler", "seed"): "Also of the fits of applications.",
    ("modeler", "state"): "The file is `modeler.snapshot`.",
    ("modeler", "classes"): "About 10 kB each.",
    ("modeler", "accept"): "[What that means](../adr/0008-learning-regimes-and-snapshots.md).",
    ("modeler", "refit"): "Fits beyond it wait.",
    ("modeler", "workers"): "[Fits by other processes](../operator/fits.md).",
    ("modeler", "dask"): "[Fits by a cluster](../operator/fits.md#a-dask-cluster).",
    ("alerts", "labels"): "[Users in metrics](../operator/privacy.md#users-in-metrics).",
    ("alerts", "processes"): "[Processes beside a job](../operator/privacy.md#processes-beside-a-job).",
    ("page", "listen"): "Addresses other than loopback need `access`.",
    ("page", "access"): "[Tokens](../operator/privacy.md#tokens).",
    ("agent", "key"): "[Keys](../operator/keys.md).",
    ("agent", "processes"): "[Processes beside a job](../operator/privacy.md#processes-beside-a-job).",
    ("agent", "work"): "[Command lines](../operator/privacy.md#command-lines).",
    ("agent", "salt"): "The content of the file, readable by all users of the node, and the same on all nodes.",
    ("agent", "rules"): "[Rules](../operator/rules.md).",
    ("agent", "ranks"): "Rank 0 must be among them, or there are no intervals. The shim takes any other value for `0`.",
    ("agent", "budget"): "[What a run sends](../user/run.md#what-it-sends).",
    ("agent", "spool"): "Never a parallel file system.",
}
"""Text for the page only, after the `meaning` of a key: mostly links."""


def written_into(page: str) -> str:
    """The text of the page with the part below HEADING replaced. Raises ValueError for a page without that part."""
    begin = page.index(f"\n{HEADING}\n") + len(HEADING) + 2
    parts = [_HEAD, *(line for section in SECTIONS for line in _section(section))]
    return page[:begin] + "\n".join(parts) + page[page.index("\n## ", begin) :]


def _section(section: type[Section]) -> Iterator[str]:
    yield f"### `[{section.table}]`\n"
    yield f"{_TEXTS[section.table]}\n"
    yield "| key | type | default | expected | environment | reload | meaning |"
    yield "|---|---|---|---|---|---|---|"
    for setting in declared(section).values():
        about = setting.about
        default = f"`{setting.default_text}`" if setting.default_text else about.otherwise
        meaning = f"{about.meaning[0].upper()}{about.meaning[1:]}. {_MORE.get((section.table, setting.name), '')}"
        cells = [f"`{setting.name}`", setting.kind, default, setting.form.expected, f"`{setting.variable}`"]
        yield f"| {' | '.join([*cells, 'yes' if about.reloads else '', meaning.rstrip()])} |"
    yield ""
    if section.per_application:
        names = " and ".join(f"`{name}`" for name in section.per_application)
        yield f'A table `[application."NAME"]` sets {names} for one application.\n'


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written_into(path.read_text()))
