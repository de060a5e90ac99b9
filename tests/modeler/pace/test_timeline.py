"""Timelines of runs."""

from collections import Counter

import pytest

from barograph_modeler.pace.timeline import SEGMENTS, Timeline
from barograph_modeler.pace.windows import Window


def windows(count: int) -> list[Window]:
    """Windows of a second; window i has i + 1 intervals of class 1, and every third one of class 2."""
    return [Window({1: i + 1} | ({2: 1} if i % 3 == 0 else {}), {1: 1.0}, float(i), i + 1.0) for i in range(count)]


@pytest.mark.parametrize("count", [1, SEGMENTS, SEGMENTS + 1, 2 * SEGMENTS + 3, 1000, 5003])
def test_a_timeline_keeps_what_has_ended_when(count: int) -> None:
    timeline = Timeline()
    for one in windows(count):
        timeline.add([one])
        assert len(timeline.segments) <= SEGMENTS
    reached: Counter[int] = Counter()
    for segment in timeline.segments:
        reached += segment.counts
        until = round(segment.ended_at)
        assert reached[1] == until * (until + 1) // 2
        assert reached[2] == (until + 2) // 3
    assert timeline.began_at == 0.0
    assert timeline.counts()[1] == count * (count + 1) // 2


def test_batches_of_any_size_give_the_same_timeline() -> None:
    whole, pieces = Timeline(), Timeline()
    whole.add(windows(777))
    for start in range(0, 777, 50):
        pieces.add(windows(777)[start : start + 50])
    assert whole.segments == pieces.segments
