"""The problems of an application: its works and parameters, and the numbers that make up a problem's size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barograph_modeler.forecasts.history import PER_NODE, Application, WorkloadPlace, problem_name
from barograph_modeler.forecasts.lengths.finding import length_law
from barograph_modeler.forecasts.lengths.law import LengthLaw, OtherLength, other_length
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.forecasts.sizes import SizeSpace, is_layout_relevant, is_number
from barograph_modeler.forecasts.works import FOUND, WORK, given_names
from barograph_modeler.recognition.request import UNKNOWN
from barograph_modeler.scaling.answer import Prediction, Refusal

NO_SIZE: Final = (1.0,)


class UnlocatedQuestion(Exception):
    """It is not known which problem a question is about. The text has the reason, and what was expected."""


class ProblemSize(NamedTuple):
    """The name of a problem, which has no sizes in it, and its size: one number for each parameter of the size.

    size: NO_SIZE if the problem has none; None if the question leaves it out. others: numbers that had another value in
    all runs, and the ratio to it: whether the runtime follows them is unknown. length: where the question asks for one
    that has not run.
    """

    name: str
    size: tuple[float, ...] | None
    others: tuple[tuple[str, float], ...] = ()
    length: OtherLength | None = None

    def applied(self, prediction: Prediction | Refusal, ranks: int) -> Prediction | Refusal:
        """The prediction for so many ranks with what is unknown of the other numbers, and for the length."""
        for name, ratio in self.others:
            if isinstance(prediction, Prediction):
                text = f"{name} never varied: the limits are for a runtime proportional to it, or independent of it."
                prediction = prediction.perhaps_times(ratio, text)
        if self.length is not None and isinstance(prediction, Prediction):
            prediction = prediction.times(*self.length.ratio(ranks), self.length.text(ranks))
        return prediction


@dataclass(frozen=True)
class ProblemSpace:
    """sizes: for each work, by its label, which numbers make up sizes. lengths: which is the length of its runs. names:
    the parameters that its runs have had. layouts: works whose runtimes follow the ranks per node. usual: the only work
    of which something is known, if most scales are of it; empty otherwise. named: by the names of given parameters, the
    only work that was run with them: runs of which the work is unknown, as imported ones, are of it."""

    application: Application
    sizes: Mapping[str, SizeSpace]
    lengths: Mapping[str, LengthLaw] = field(default_factory=dict)
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    layouts: frozenset[str] = frozenset()
    usual: str = ""
    named: Mapping[frozenset[str], str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        application: Application,
        known: Sequence[tuple[WorkloadPlace, float]],
        parts: Mapping[WorkloadPlace, Sequence[PhasedRun]] | None = None,
    ) -> ProblemSpace:
        """The space of workloads and their median seconds. parts: of runs, by workload."""
        works: dict[str, list[tuple[WorkloadPlace, float]]] = {}
        named = _named(place for place, _ in known)
        for place, seconds in known:
            params = _of_named(dict(place.params), named)
            found = place._replace(params=tuple(sorted(params.items())))
            works.setdefault(params.get(WORK, ""), []).append((found, seconds))
        phased_runs = parts or {}
        phased = {label: [(place, phased_runs.get(place, ())) for place, _ in some] for label, some in works.items()}
        layouts = frozenset(label for label, some in works.items() if is_layout_relevant(some))
        for label in layouts:
            works[label] = [(place.with_layout(), seconds) for place, seconds in works[label]]
            phased[label] = [(place.with_layout(), runs) for place, runs in phased[label]]
        sizes = {label: SizeSpace.of(some) for label, some in works.items()}
        laws = {label: law for label, some in phased.items() if (law := length_law(some, sizes[label])) is not None}
        names = {
            label: frozenset(name for place, _ in some for name, _ in place.params) for label, some in works.items()
        }
        known_works = [label for label in works if label not in ("", UNKNOWN)]
        is_usual = len(known_works) == 1 < len(works) and 2 * len(works[known_works[0]]) > len(known)
        usual = known_works[0] if is_usual else ""
        return cls(application, sizes, laws, names, layouts, usual, named)

    def locate(self, params: Mapping[str, str]) -> ProblemSize:
        """The problem and size of a run or a question.

        One without any parameter of the size asks for no size. One that has a part of them, or has no numbers there,
        is a problem of its own. One of a length that has not run is located at the nearest that has. Raises
        UnlocatedQuestion where several works have run and none is named, and for numbers without a part of the size of
        which no run has the name.
        """
        params = self.with_work(params)
        self._check_names(params)
        return self._locate_nearest(params)

    def _check_names(self, params: Mapping[str, str]) -> None:
        label = params.get(WORK, "")
        space, names = self.sizes.get(label), self.names.get(label, frozenset())
        if space is None or not space.names or params.keys() & (set(space.names) - {PER_NODE}):
            return
        unknown = [name for name, text in params.items() if name not in names and name != WORK and is_number(text)]
        if unknown:
            raise UnlocatedQuestion(f"no run has had a parameter {unknown[0]}, expected {' and '.join(space.names)}")

    def params_of(self, place: WorkloadPlace) -> dict[str, str]:
        """The parameters of a run, with its ranks per node where its runtime follows them."""
        params = _of_named(dict(place.params), self.named)
        has_layout = params.get(WORK, "") in self.layouts
        return {**dict(place.with_layout().params), **params} if has_layout else params

    def _locate_nearest(self, params: Mapping[str, str]) -> ProblemSize:
        length = other_length(self.lengths.get(params.get(WORK, "")), params)
        if length is not None:
            numbers = self.sizes[params.get(WORK, "")].numbers(length.law.others, params)
            length = length._replace(size=numbers or ())
            params = {**params, length.law.name: length.law.nearest(params[length.law.name]) or ""}
        return self._locate(params)._replace(length=length)

    def place(self, place: WorkloadPlace) -> ProblemSize:
        """The problem and size of a run, which has no size if it has none of the parameters."""
        problem = self._locate_nearest(self.params_of(place))
        return problem._replace(size=problem.size or NO_SIZE)

    def of_run(self, place: WorkloadPlace) -> tuple[str, tuple[float, ...]]:
        """The name and size of the problem of a run that belongs to the space."""
        problem = self.place(place)
        return problem.name, problem.size or NO_SIZE

    def text(self, params: Mapping[str, str], size: Iterable[float]) -> str:
        """A size as parameters. params: of the question."""
        return self.sizes[self.with_work(params).get(WORK, "")].text(size)

    def name(self, place: WorkloadPlace) -> str:
        """The parameters of a workload that tell it from others, as text."""
        return " ".join(f"{name}={text}" for name, text in sorted(self.relevant(self.params_of(place)).items()))

    def relevant(self, params: Mapping[str, str]) -> dict[str, str]:
        """Parameters without numbers that do not matter, and without the work if there is one only; of a work that has
        not run, without the numbers that were found in it."""
        space = self.sizes.get(params.get(WORK, ""))
        if space is None:
            return {name: text for name, text in params.items() if not FOUND.fullmatch(name)}
        found = space.relevant(params)
        if len(self.sizes) == 1:
            found.pop(WORK, None)
        return found

    def unfollowed(self, params: Mapping[str, str]) -> dict[str, frozenset[str]]:
        """Parameters of a question that runs have shown not to matter, with their values in runs."""
        space = self.sizes.get(params.get(WORK, ""))
        return {} if space is None else space.unfollowed(params)

    def followed(self, label: str) -> set[str]:
        """The numbers of a work that runtimes follow: its size and its length."""
        length = self.lengths.get(label)
        return set(self.sizes[label].names if label in self.sizes else ()) | ({length.name} if length else set())

    def size_names(self, params: Mapping[str, str]) -> set[str]:
        """The parameters that make up the size of the work that a question is about. Raises UnlocatedQuestion."""
        space = self.sizes.get(self.with_work(params).get(WORK, ""))
        return set() if space is None else set(space.names)

    def reason(self, refusal: Refusal, params: Mapping[str, str]) -> str:
        """Why there is no prediction; where a size is missing, with the parameters that make it up."""
        if not refusal.without_size:
            return refusal.reason
        return f"{refusal.reason}: a value of {' and '.join(sorted(self.size_names(params) - {PER_NODE}))}"

    def with_work(self, params: Mapping[str, str]) -> Mapping[str, str]:
        """Parameters with the label of the only work of which something is known, or of the only one that was run with
        given parameters of these names. Raises UnlocatedQuestion where there are several and none is named."""
        if WORK in params or ("" in self.sizes and len(self.sizes) == 1):
            return params
        given = given_names(params)
        labels = [label for label, names in self.names.items() if given and given <= names]
        if len(labels) == 1:
            return {**params, WORK: labels[0]} if labels[0] else params
        if self.usual:
            return {**params, WORK: self.usual}
        if len(self.sizes) > 1:
            raise UnlocatedQuestion(f"{len(self.sizes)} works have been run and none was named, expected one")
        return {**params, WORK: next(iter(self.sizes))}

    def _locate(self, params: Mapping[str, str]) -> ProblemSize:
        space = self.sizes.get(params.get(WORK, ""))
        if space is None:
            return ProblemSize(problem_name(self.application, self.relevant(params)), NO_SIZE)
        others = space.others(params)
        params = self.relevant({name: text for name, text in params.items() if name not in dict(others)})
        if not space.names:
            return ProblemSize(problem_name(self.application, params), NO_SIZE, others)
        rest = {name: text for name, text in params.items() if name not in space.names}
        if len(rest) == len(params) or (params.keys() & set(space.names) == {PER_NODE} != set(space.names)):
            return ProblemSize(problem_name(self.application, rest), None, others)
        size = space.size(params)
        if size is None:
            return ProblemSize(problem_name(self.application, params), NO_SIZE, others)
        return ProblemSize(problem_name(self.application, rest), size, others)


def _named(places: Iterable[WorkloadPlace]) -> dict[frozenset[str], str]:
    """By the names of given parameters, the label of the only work that was run with them."""
    labels: dict[frozenset[str], set[str]] = {}
    for params in (dict(place.params) for place in places):
        if (given := given_names(params)) and (label := params.get(WORK, "")):
            labels.setdefault(given, set()).add(label)
    return {given: some.pop() for given, some in labels.items() if len(some) == 1}


def _of_named(params: dict[str, str], named: Mapping[frozenset[str], str]) -> dict[str, str]:
    """Parameters of a run, with the label of the only work that was run with those that were given."""
    label = named.get(given_names(params), "")
    return {**params, WORK: label} if label and WORK not in params else params
