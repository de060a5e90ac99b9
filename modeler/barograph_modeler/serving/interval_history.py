"""What the modeler keeps of the intervals of one problem, by scale: copied while nothing is learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from barograph_modeler.bands.class_model import ClassModel
from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.library import Published
from barograph_modeler.forecasts.parts.history import PartsHistory
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.forecasts.problems import ProblemSize, UnlocatedQuestion
from barograph_modeler.learning.workload import Workload
from barograph_modeler.maxima.interval_forecast import IntervalSample
from barograph_modeler.maxima.trend import BLOCKS
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.serving.completion import completed
from barograph_modeler.serving.question import Question

MAX_CLASSES: Final = 10
"""Classes in an answer: those with most time."""
MIN_SHARE: Final = 0.01
"""Of the time in all intervals, from which on a class is in the answer."""
MIN_VALUES: Final = 2 * BLOCKS
"""Values of a smaller scale of which the drift of the regime can be measured; fewer are no evidence of a trend."""


class IntervalClass(NamedTuple):
    """A class of intervals. share: of the time in all intervals at the scale in question, 0 to 1."""

    class_id: int
    share: float
    samples: Mapping[int, IntervalSample]
    """By ranks."""


class IntervalHistory(NamedTuple):
    """The classes with most time, the largest share first, or why there are none.

    ranks: the scale in question, one of those that have run or above all of them. problem: with its size, None where
    none was asked for. size: as parameters, where none was asked for and it grows with the ranks. runs: of the scale in
    question, or the largest, with what ranks have done.
    """

    ranks: int
    problem: ProblemSize = ProblemSize("", None)
    classes: tuple[IntervalClass, ...] = ()
    refusal: str | None = None
    size: str = ""
    runs: tuple[PhasedRun, ...] = ()

    @classmethod
    def of(
        cls,
        known: Published,
        places: Iterable[WorkloadPlace],
        workloads: Mapping[str, Workload],
        question: Question,
        parts: PartsHistory,
    ) -> Self:
        """Copy the intervals of the problem of a question. The caller sees to it that nothing is learned meanwhile.

        places: of the application's workloads, the least recently run first: at each number of ranks the newest with
        intervals counts. The scale at which shares are measured is that of the question if it has run, else the
        largest. parts: what the ranks of runs have done.
        """
        try:
            located = known.space.locate(completed(known, question.params).params)
            found, size = _places(known, located, places, workloads, question)
        except (UnlocatedQuestion, _NoScale) as error:
            return cls(question.ranks, refusal=str(error))
        scales = {ranks: workloads[place.workload] for ranks, place in found.items()}
        largest = max(scales)
        if question.ranks not in scales and question.ranks < largest:
            text = "intervals are predicted at scales that have run and at larger ones"
            text = f"{text}; {_listed(scales)} ranks have run, expected one of these or more than {largest:,}"
            return cls(question.ranks, refusal=text)
        scale = question.ranks if question.ranks in scales else largest
        at = scales[scale]
        seconds = at.seconds or 1.0
        shares = sorted(((model.seconds / seconds, class_id) for class_id, model in at.intervals.items()), reverse=True)
        some = [(class_id, share) for share, class_id in shares[:MAX_CLASSES] if share >= MIN_SHARE]
        classes = (
            IntervalClass(int(class_id), share, _samples(scales, class_id, question.ranks)) for class_id, share in some
        )
        known_classes = tuple(one for one in classes if one.samples)
        return cls(question.ranks, located, known_classes, size=size, runs=tuple(parts.runs(found[scale])))


class _NoScale(Exception):
    pass


def _places(
    known: Published,
    located: ProblemSize,
    places: Iterable[WorkloadPlace],
    workloads: Mapping[str, Workload],
    question: Question,
) -> tuple[dict[int, WorkloadPlace], str]:
    """Workloads with intervals of the problem in question, by ranks ascending, and the size along a series.

    Raises _NoScale.
    """
    if located.others:
        names = ", ".join(name for name, _ in located.others)
        raise _NoScale(f"{names} had another value in all runs, and whether intervals follow it is unknown")
    # Imported runs have no intervals.
    every = [place for place in places if place.workload in workloads and workloads[place.workload].intervals]
    if not every:
        raise _NoScale(f"no intervals of {known.application.app} are known, expected runs that were not imported")
    problems = ((place, *known.space.of_run(place)) for place in every)
    found = [(place, size) for place, name, size in problems if name == located.name]
    series = ""
    if located.size is None and len({size for _, size in found}) > 1:
        size = known.predictor.default_size(located.name, question.ranks)
        if isinstance(size, Refusal):
            raise _NoScale(known.space.reason(size, question.params))
        series = known.space.text(question.params, size)
    found = [(place, size) for place, size in found if located.size in (None, size)]
    if not found:
        raise _NoScale("no intervals with these parameters are known, expected parameters that have been run")
    # The last of each number of ranks is the newest.
    newest = {place.ranks: place for place, _ in found}
    return {ranks: newest[ranks] for ranks in sorted(newest)}, series


def _samples(scales: Mapping[int, Workload], class_id: int, ranks: int) -> dict[int, IntervalSample]:
    """The samples of a class by ranks: of the scale in question only, or of the largest and of those below."""
    if ranks in scales:
        return {ranks: _sample(scales[ranks].intervals[class_id])}
    largest = max(scales)
    every = {
        own: _sample(workload.intervals[class_id]) for own, workload in scales.items() if class_id in workload.intervals
    }
    return {own: one for own, one in every.items() if own == largest or one.values.size >= MIN_VALUES}


def _sample(model: ClassModel) -> IntervalSample:
    values = model.history.series
    gev = next((band.gev for band in model.bands if band.gev is not None), None) if model.trusted else None
    return IntervalSample(values[values > 0], model.history.band(), gev)


def _listed(scales: Iterable[int]) -> str:
    *most, last = (f"{ranks:,}" for ranks in scales)
    return f"{', '.join(most)} and {last}" if most else last
