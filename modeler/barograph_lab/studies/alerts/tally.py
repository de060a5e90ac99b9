"""Counts of false alarms, detections and delays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

from barograph_lab.studies.alerts.detectors import Detect, JobCase


@dataclass
class DetectorTally:
    """Results of one detector. delays: windows from onset to alarm, one per detected job."""

    healthy: int = 0
    false: int = 0
    disturbed: int = 0
    delays: list[int] = field(default_factory=list)
    early: int = 0
    """Disturbed jobs that also alarmed before the onset."""

    def count(self, detect: Detect, job: JobCase) -> None:
        """Run a detector on one job and count its alarms."""
        self.add(job.onset, detect(job))

    def add(self, onset: int | None, alarms: Sequence[int]) -> None:
        """Count the alarms of one job. In a disturbed one, the first alarm after the onset is the detection."""
        if onset is None:
            self.healthy += 1
            self.false += bool(alarms)
            return
        self.disturbed += 1
        self.early += any(at <= onset for at in alarms)
        if after := [at for at in alarms if at > onset]:
            self.delays.append(after[0] - onset)

    @property
    def found(self) -> int:
        """Number of disturbed jobs that alarmed after the onset."""
        return len(self.delays)

    @property
    def delay(self) -> float | None:
        """Median windows from onset to alarm; None without detections."""
        return float(np.median(self.delays)) if self.delays else None

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Clopper-Pearson interval of the share of healthy jobs that ever alarm."""
        k, n = self.false, self.healthy
        low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
        high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
        return low, high
