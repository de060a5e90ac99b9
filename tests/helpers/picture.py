"""Draws the picture of the start page: cd tests && python -m helpers.picture ../docs/images/page.png."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from deploy.test_site_browser import opened, served
from helpers.fleet import Fleet
from helpers.log import collector_on

SIZE = {"width": 1280, "height": 1040}


def fill(endpoint: str) -> None:
    """Six running jobs, one of them slow, and twelve that ended, one of them after an alarm."""
    fleet = Fleet(endpoint, time.time())
    over = fleet.put_running(18)[:12]
    slow = over[3]
    fleet.put("runs", [fleet.run(job, fleet.now - job["started_at"] - 300.0 * n - 60) for n, job in enumerate(over)])
    fleet.put("scores", [fleet.score(job, final=1) for job in over if job is not slow])
    fleet.put("scores", [fleet.score(slow, "slow", 1.27, 1500, final=1)])
    fleet.deliver()


def draw(path: Path, address: str = "/", scheme: str = "light") -> None:
    """Write a PNG of a page of the site."""
    with (
        tempfile.TemporaryDirectory() as directory,
        collector_on(Path(directory) / "log.duckdb") as collector,
        sync_playwright() as playwright,
    ):
        fill(collector.endpoint)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with served(collector.endpoint) as site, opened(browser, site + address, scheme) as page:
            page.set_viewport_size(SIZE)
            page.screenshot(path=str(path))
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]), *sys.argv[2:])
