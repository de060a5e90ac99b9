"""What a report says of how much runs vary."""

import numpy as np

from barograph.report.application import _summary
from barograph.report.scale import RunsAtScale

LIMITS = {"lower_seconds": 6.0, "expected_seconds": 9.0, "upper_seconds": 13.0}


def test_a_scale_of_one_run_is_not_the_scale_that_varies_most() -> None:
    more, once = (
        RunsAtScale("app", ranks, 1, np.full(runs, 9.0), np.empty(0), 0, LIMITS | {"samples": runs})
        for ranks, runs in ((2, 3), (4, 1))
    )
    varies, largest = "It varies most on 2 ran", "On 4 ranks, the largest"
    assert [line[:23] for line in _summary([{"ended_at": 0.0}], [more, once])][1:] == [varies, largest]
    assert [line[:23] for line in _summary([{"ended_at": 0.0}], [once])][1:] == [largest]
