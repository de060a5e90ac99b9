"""The site in a browser: navigation, filter and both themes, without errors or warnings of the browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from helpers.fleet import Fleet
from helpers.log import collector_on
from helpers.up import free_ports

pytestmark = pytest.mark.integration
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        assert not os.environ.get("CI"), "chromium is missing: tests/install-packages installs it"
        pytest.skip("chromium is missing: tests/install-packages installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def served(endpoint: str) -> Iterator[str]:
    """`barograph page` over this log; yields its address. It must log nothing but its first line."""
    port = free_ports(1)
    words = [f"--collector={endpoint}", f"--listen=127.0.0.1:{port}", "--modeler=http://127.0.0.1:1"]
    command = [sys.executable, "-m", "barograph", "page", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert f"listening on http://127.0.0.1:{port}" in process.stderr.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            rest = process.stderr.read()
    assert (process.returncode, rest) == (0, "")


@contextmanager
def running(directory: Path, jobs: int) -> Iterator[str]:
    """The site over a log with so many running jobs; yields its address."""
    with collector_on(directory / "log.duckdb") as collector:
        fleet = Fleet(collector.endpoint, time.time())
        fleet.put_running(jobs)
        fleet.deliver()
        with served(collector.endpoint) as address:
            yield address


@contextmanager
def opened(browser: Browser, address: str, scheme: str = "light") -> Iterator[Page]:
    """A tab at this address; an error or warning of the browser fails the test."""
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # The browser aborts pending requests when a link is followed.
    aborted = "net::ERR_ABORTED"
    page.on("requestfailed", lambda request: None if request.failure == aborted else complaints.append(request.url))
    page.goto(address)
    yield page
    assert complaints == []
    context.close()


def paper(page: Page) -> str:
    """The background colour of the page."""
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def first_paint(page: Page) -> float:
    """Milliseconds from the request to the first contentful paint."""
    # A page may be loaded before its first paint. Polling inside the page needs eval, which its
    # Content-Security-Policy forbids.
    return float(page.evaluate(FIRST_PAINT))


FIRST_PAINT = """() => new Promise((resolve) => {
  new PerformanceObserver((paints) => {
    for (const paint of paints.getEntriesByName("first-contentful-paint")) resolve(paint.startTime);
  }).observe({ type: "paint", buffered: true });
})"""


def test_without_jobs_the_page_explains_how_to_start_one(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, 0) as address, opened(browser, address) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        expect(page.locator("#listing")).to_contain_text("Barograph watches no running job")
        for name, heading in (("Alarms", "Alarms"), ("Applications", "Applications"), ("Pipeline", "Pipeline")):
            page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(heading)
            expect(page.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")


def test_a_job_is_reached_with_the_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, 1) as address, opened(browser, address) as page:
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        job = page.get_by_role("link", name="lab/4700000.0.0")
        for _ in range(40):
            page.keyboard.press("Tab")
            if job.evaluate("link => link === document.activeElement"):
                break
        assert job.evaluate("link => getComputedStyle(link).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("lab/4700000.0.0")
        chart = page.get_by_role("img")
        expect(chart).to_have_attribute("aria-label", re.compile(r"480 intervals, 4\.\d+ ms on average"))
        page.get_by_text("The same as a table").click()
        expect(page.get_by_role("region", name="Intervals, a table").get_by_role("row")).to_have_count(25)


def test_five_thousand_jobs_are_filtered_while_typing_sorted_and_paged(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, 5000) as address, opened(browser, address) as page:
        rows = page.locator("table.jobs tbody tr")
        print(f"first paint of 5,000 jobs after {first_paint(page):.0f} ms")
        expect(rows).to_have_count(50)
        expect(page.locator("#found")).to_contain_text("5,000 jobs, page 1 of 100")
        page.get_by_role("searchbox", name="Filter").press_sequentially("wrf slow")
        expect(page).to_have_url(re.compile(r"\?filter=wrf\+slow$"))
        expect(page.locator("#found")).to_contain_text("of 5,000 jobs match")
        expect(rows.first).to_contain_text("wrf")
        expect(page.get_by_role("searchbox", name="Filter")).to_be_focused()
        page.get_by_role("searchbox", name="Filter").fill("4704999")
        expect(rows).to_have_count(1)
        page.get_by_role("searchbox", name="Filter").fill("")
        expect(rows).to_have_count(50)
        page.get_by_role("link", name="Next").click()
        expect(page.locator("#found")).to_contain_text("page 2 of 100")
        page.get_by_role("columnheader", name="Ranks").get_by_role("link").click()
        expect(page.get_by_role("columnheader", name="Ranks")).to_have_attribute("aria-sort", "descending")
        expect(rows.first).to_contain_text("4,096")


def test_the_theme_follows_the_system_until_one_is_chosen(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, 1) as address:
        with opened(browser, address, "dark") as page:
            dark = paper(page)
        with opened(browser, address, "light") as page:
            light = paper(page)
            assert light != dark
            page.get_by_role("button", name="Switch to the dark theme").click()
            assert paper(page) == dark
            page.get_by_role("link", name="Alarms").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Alarms")
            assert paper(page) == dark


def test_text_has_enough_contrast_in_both_themes(browser: Browser, tmp_path: Path) -> None:
    """WCAG 2, contrast (minimum), AA: 4.5 to 1."""
    with running(tmp_path, 100) as address:
        for scheme in ("light", "dark"):
            with opened(browser, address, scheme) as page:
                names = ["--ink", "--quiet", "--link", "--slow", "--stalled", "--recovered", "--healthy"]
                for ground in ("--paper", "--sheet"):
                    for name in names:
                        ratio = page.evaluate(CONTRAST, [name, ground])
                        assert ratio >= 4.5, f"{name} on {ground}, {scheme}: {ratio:.2f}"


CONTRAST = """([name, ground]) => {
  const light = (variable) => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [light(name), light(ground)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""


def test_an_open_page_shows_new_jobs(browser: Browser, tmp_path: Path) -> None:
    with (
        collector_on(tmp_path / "log.duckdb") as collector,
        served(collector.endpoint) as address,
        opened(browser, address) as page,
    ):
        expect(page.locator("#counts")).to_have_text("No job is running.")
        fleet = Fleet(collector.endpoint, time.time())
        fleet.put_running(18)
        fleet.deliver()
        expect(page.locator("#counts")).to_contain_text("slow")
        expect(page.locator("table.jobs tbody tr")).to_have_count(18)
