"""The outcome of the demo in words and as a page, with the checks that it has to pass."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from barograph.demo.chronicle import Chapter, ClassBand

RESTLESS: Final = 1.3
"""Healthy runs that differ by this factor had other company than Barograph's."""


@dataclass(frozen=True)
class DemoStory:
    """All runs. learning: those that the bands were learned from. hog_at: Unix seconds when the disturbance began."""

    learning: list[Chapter]
    disturbed: Chapter
    healthy: Chapter
    band: ClassBand | None
    hog_at: float

    @property
    def chapters(self) -> list[Chapter]:
        """All runs in order."""
        return [*self.learning, self.disturbed, self.healthy]

    @property
    def learned_runs(self) -> int:
        """How many runs were learned from: one that alarmed, because something else disturbed it, is left out."""
        return sum(chapter.state != "slow" for chapter in self.learning)

    @property
    def restless(self) -> str:
        """In a sentence, that something else used this machine meanwhile; empty where nothing shows that."""
        seconds = [chapter.runtime_seconds for chapter in self.learning]
        if self.disturbed.state == "slow" and not self.caught:
            sign = "The disturbed run was slow before the hog began"
        elif max(seconds) >= RESTLESS * min(seconds):
            sign = f"The healthy runs took {min(seconds):.1f} to {max(seconds):.1f} s"
        else:
            return ""
        return (
            f"{sign}: something else uses these cores, beside which little stands out. "
            "Make the demo again when it is over."
        )

    @property
    def delay_seconds(self) -> float:
        """From the hog's start to the alarm's row in the log; NaN without an alarm."""
        return self.disturbed.alarm_at - self.hog_at

    @property
    def caught(self) -> bool:
        """The disturbed run alarmed, and not before it was disturbed."""
        return self.disturbed.state == "slow" and self.delay_seconds > 0

    def checks(self) -> list[tuple[bool, str]]:
        """What must be true for the demo to have worked, and whether it is."""
        counted = sum(chapter.counted for chapter in self.chapters)
        stored = sum(chapter.stored for chapter in self.chapters)
        equal = all(chapter.counted == chapter.stored > 0 for chapter in self.chapters)
        delay = f", {self.delay_seconds:.1f} s after the hog began" if self.caught else ""
        return [
            (equal, f"every interval arrived once: {counted:,} counted by the shim, {stored:,} rows stored"),
            (self.band is not None, f"bands were learned from {self.learned_runs} healthy runs"),
            (self.caught, f"the disturbed run raised an alarm{delay}"),
            (self.healthy.state == "healthy", "the healthy run after it raised none"),
        ]

    @property
    def true(self) -> bool:
        """All checks hold."""
        return all(holds for holds, _ in self.checks())


def learned(band: ClassBand | None) -> str:
    """The bands as a sentence."""
    if band is None:
        return "Nothing was learned."
    lower, expected, upper = (1e3 * value for value in band.interval)
    return (
        f"In the call-site class where the time goes, 95 % of healthy intervals take {lower:.2f} to {upper:.2f} ms "
        f"(median {expected:.2f} ms); a whole run takes {band.runtime[1]:.1f} s "
        f"(95 %: {band.runtime[0]:.1f} to {band.runtime[2]:.1f} s)."
    )


def headline(story: DemoStory) -> str:
    """What happened to the disturbed run."""
    if not story.caught:
        return "The disturbed run was not caught"
    return (
        f"Caught: {story.disturbed.slowdown:.1f}x slower than its history, "
        f"alarm {story.delay_seconds:.1f} s after the disturbance began"
    )


def write_page(story: DemoStory, picture: Path, path: Path) -> None:
    """Write the report, one file that needs no other."""
    loader = FileSystemLoader(Path(__file__).parent)
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("report.html")
    data = base64.b64encode(picture.read_bytes()).decode()
    path.write_text(template.render(story=story, headline=headline(story), learned=learned(story.band), picture=data))
