"""The outcome of the demo: checks and sentences."""

from __future__ import annotations

from dataclasses import dataclass, field

from barograph.demo.runs import DemoRun


@dataclass(frozen=True)
class DemoOutcome:
    """The runs of a demo. learning: undisturbed runs before the disturbed one. hog_at: its start in Unix seconds.

    runs_learned: number of runs that the disturbed one is compared with. repeated: runs that others disturbed.
    """

    learning: list[DemoRun]
    runs_learned: int
    disturbed: DemoRun
    healthy: DemoRun
    hog_at: float
    repeated: list[DemoRun] = field(default_factory=list)

    @property
    def runs(self) -> list[DemoRun]:
        """All runs."""
        return [*self.learning, *self.repeated, self.disturbed, self.healthy]

    @property
    def interference(self) -> str:
        """A sentence on another load on this machine; empty if there is no sign of one."""
        disturbed = [run for run in self.runs if not run.left_alone]
        if not disturbed:
            return ""
        most = max(run.taken for run in disturbed)
        return f"Others took up to {most:.0%} of the cores of {len(disturbed)} of {len(self.runs)} runs."

    @property
    def delay_seconds(self) -> float:
        """Time from the start of the hogs to the alarm; NaN without an alarm."""
        return self.disturbed.alarm_at - self.hog_at

    @property
    def caught(self) -> bool:
        """Whether the disturbed run alarmed after the start of the disturbance."""
        return self.disturbed.alarmed_after(self.hog_at)

    def checks(self) -> list[tuple[bool, str]]:
        """The checks of the demo: whether each holds, and its text."""
        counted = sum(run.counted for run in self.runs)
        stored = sum(run.stored for run in self.runs)
        equal = all(run.counted == run.stored > 0 for run in self.runs)
        disturbed = "the disturbed run raised an alarm"
        early = self.disturbed.alarmed and not self.caught
        before = early and not self.disturbed.left_alone
        if self.caught:
            disturbed += f", {self.delay_seconds:.1f} s after the hog began"
        elif before:
            disturbed += f" before the hog began: others took {self.disturbed.taken:.0%} of its cores"
        elif early:
            disturbed = "the disturbed run raised no alarm before the hog began"
        healthy, others = "the healthy run after it raised none", not self.healthy.left_alone and self.healthy.alarmed
        if others:
            healthy = f"the run after it raised one: others took {self.healthy.taken:.0%} of its cores"
        return [
            (equal, f"every interval arrived once: {counted:,} counted by the shim, {stored:,} rows stored"),
            (self.runs_learned > 1, f"the pace was learned from {self.runs_learned} of {len(self.learning)} runs"),
            (self.caught or before, disturbed),
            # One healthy run of 20 is outside of limits that hold 95 %.
            (others or self.healthy.state in ("healthy", "inconclusive"), healthy),
        ]

    @property
    def passed(self) -> bool:
        """Whether all checks hold."""
        return all(holds for holds, _ in self.checks())


def headline(outcome: DemoOutcome) -> str:
    """The outcome of the disturbed run as a headline."""
    if not outcome.caught:
        return "The disturbed run was not caught"
    return (
        f"Caught: {outcome.disturbed.slowdown:.1f}x slower than its history, "
        f"alarm {outcome.delay_seconds:.1f} s after the disturbance began"
    )
