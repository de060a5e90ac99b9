"""Which number of the runs of a work is how long they are: the one that counts their intervals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.lengths.law import LengthLaw, LengthScale, Numbers, length_of
from barograph_modeler.forecasts.parts.phased_run import PhasedRun, phase_seconds
from barograph_modeler.forecasts.sizes import SizeSpace

MISCOUNT: Final = 2
"""Intervals by which a class may miss a multiple of the number: a first one, and a last one."""
MIN_SHARE: Final = 0.5
"""Share of the time in intervals that the classes counted by a number must take for it to be a length, and of the
runtime of the longest runs."""
STEADY: Final = 1.25
"""Paces of runs of different lengths at one scale differ by this ratio at most: else the number is a size too."""


def length_law(runs: Sequence[tuple[WorkloadPlace, Sequence[PhasedRun]]], sizes: SizeSpace) -> LengthLaw | None:
    """The length of the runs of one work, by workload; None if no number, or more than one, is found to be it.

    sizes: which numbers make up sizes; the length may be among them.

    A number is a length if a class of intervals has occurred that many times, within MISCOUNT, in each run, and the
    classes that occurred a multiple of it take MIN_SHARE of the time in intervals, and of the runtime of the longest.
    Where runs have several lengths, a class may occur once for several of the number, as an output every 50 steps does,
    or several times for each, and their paces must be STEADY.
    """
    places = [place for place, some in runs if some]
    if not places:
        return None
    names = set.intersection(*({name for name, text in place.params if length_of(text)} for place in places))
    every = (next(filter(None, (_law(name, one, runs, sizes) for one in _strides(name, runs))), None) for name in names)
    found = [law for law in every if law is not None]
    return found[0] if len(found) == 1 else None


def _strides(name: str, runs: Sequence[tuple[WorkloadPlace, Sequence[PhasedRun]]]) -> Iterator[float]:
    """How many of a number an interval may stand for: one; and what the shortest and the longest run show, by the class
    that takes most of their time."""
    yield 1.0
    every = [(length_of(dict(place.params)[name]), run.phases()[run.classes[0]].count) for place, some in runs
             for run in some]  # fmt: skip
    (shortest, fewest), (longest, most) = min(every), max(every)
    if longest > shortest and most > fewest + 2 * MISCOUNT:
        yield (longest - shortest) / (most - fewest)


def _law(
    name: str, stride: float, runs: Sequence[tuple[WorkloadPlace, Sequence[PhasedRun]]], sizes: SizeSpace
) -> LengthLaw | None:
    scales: dict[tuple[int, Numbers], list[tuple[int, float, float]]] = {}
    others = tuple(one for one in sizes.names if one != name)
    for place, some in runs:
        params = dict(place.params)
        number, size = length_of(params[name] if some else ""), sizes.numbers(others, params) or ()
        for run in some:
            if (iterated := _iterated_seconds(run, number / stride)) is None:
                return None
            scales.setdefault((place.ranks, size), []).append((number, run.seconds - iterated, iterated / number))
    every = (run for some in scales.values() for run in some)
    number, setup, pace = max(every, key=lambda run: run[1] + run[0] * run[2])
    if number * pace < MIN_SHARE * (setup + number * pace) or any(not _is_steady(some) for some in scales.values()):
        return None
    values = dict.fromkeys(text for place, _ in runs if length_of(text := dict(place.params).get(name, "")))
    return LengthLaw(name, tuple(values), tuple(_scale(*at, some) for at, some in sorted(scales.items())), others)


def _iterated_seconds(run: PhasedRun, number: float) -> float | None:
    """Time in the classes that a number counts; None if it counts none, or too little of the time in intervals."""
    counts = {class_id: phase.count for class_id, phase in run.phases().items()}
    if not any(abs(count - number) <= MISCOUNT for count in counts.values()):
        return None
    seconds = sum(
        phase_seconds(phase)
        for class_id, phase in run.phases().items()
        if counts[class_id] >= number - MISCOUNT
        and abs(counts[class_id] - number * round(counts[class_id] / number)) <= MISCOUNT
    )
    return min(seconds, run.seconds) if seconds >= MIN_SHARE * run.measured_seconds else None


def _is_steady(runs: Iterable[tuple[int, float, float]]) -> bool:
    """Whether the paces of all lengths are alike."""
    by_length: dict[int, list[float]] = {}
    for number, _, pace in runs:
        by_length.setdefault(number, []).append(pace)
    paces = [statistics.median(some) for some in by_length.values()]
    return max(paces) <= STEADY * min(paces)


def _scale(ranks: int, size: Numbers, runs: Sequence[tuple[int, float, float]]) -> LengthScale:
    setup, pace = (statistics.median(run[i] for run in runs) for i in (1, 2))
    return LengthScale(ranks, max(setup, 0.0), pace, size)
