"""An answer of the modeler in sentences: runtime, time limit, gain from more ranks, data and model behind it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from barograph.views.log import limits
from barograph.views.words import listed, period, plural, share, span, time_limit

NO_LIMIT: Final = "No time limit: the interval is too wide for one to be of use. More runs make it narrower."
NO_LIMIT_OF_FEATURES: Final = "A time limit needs more runs, or a larger --risk."
TRENDS: Final = {
    "levels off": ("floor", "Amdahl's law", "level", "saturating curve"),
    "grows again": ("growing overhead", "Amdahl's law with overhead"),
    "goes on as it did": ("power law", "line in logarithms"),
}
"""Kinds of curves in an answer's `basis.model`, by what they mean for the time on more ranks."""
MIN_SHARE: Final = 0.05
"""Probability from which a trend is shown."""
VAGUE_SHARE: Final = 0.5
"""Width of the interval of the parallel share from which it tells nothing."""

Answer = Mapping[str, Any]
"""The answer of `GET /predict`, from `barograph_modeler.serving.answer`."""


def sentences(answer: Answer, use: str = "") -> list[str]:
    """The answer, one or two sentences per line. use: what listed parameters are for, such as ", for --param"."""
    return list(_sentences(answer, use))


def _sentences(answer: Answer, use: str) -> Iterator[str]:
    where = f"{plural(answer['ranks'], 'rank')} of {answer['cluster']}"
    if answer["nodes"]:
        where += f", {plural(answer['nodes'], 'node')},"
    params = listed(answer["params"])
    name = f"{answer['app']} ({params})" if params else answer["app"]
    if answer["refusal"] is not None:
        yield f"No prediction for {name} on {where.rstrip(',')}: {period(answer['refusal'])}"
        yield from _features(answer) if "features" in answer else known_params(answer, use)
        return
    lower, expected, upper = map(span, limits(answer))
    yield f"{name} on {where} should take {expected}; 95 of 100 runs take {lower} to {upper}."
    if (limit := answer["limit"]) is not None:
        asked = time_limit(limit["request_seconds"])
        yield f"Ask for {asked}: at most {share(limit.get('supported_risk', limit['risk']))} of such runs need longer."
    else:
        yield NO_LIMIT_OF_FEATURES if "features" in answer else NO_LIMIT
    if "features" in answer:
        yield from _features(answer)
        return
    yield from _scaling(answer)
    yield _basis(answer["basis"])
    yield from known_params(answer, use)
    yield from (f"Assumed: {text[:1].lower()}{period(text[1:])}" for text in answer["conditions"])
    yield from (f"Warning: {period(text)}" for text in answer["warnings"])


def _features(answer: Answer) -> Iterator[str]:
    """The data and the accuracy of a feature model, and which features it does not use."""
    basis = answer["basis"]
    ordered = sorted(basis["features"].items(), key=lambda item: -item[1])
    shares = ", ".join(f"{name} ({share(round(weight, 3))})" for name, weight in ordered)
    yield f"This rests on {plural(basis['runs'], 'run')} and on these features, by importance: {shares}."
    if basis["error"] is not None:
        scales = basis["scaling_error"]
        other = "scales alone gave no answer" if scales is None else f"by {share(scales)} from scales alone"
        yield (
            f"Model {basis['version']} missed the {basis['scored']} newest runs, when it had learned the older ones,"
            f" by {share(basis['error'])}; {other}."
        )
    if answer["unused"]:
        yield f"Features that are unused: {', '.join(answer['unused'])}."


def _scaling(answer: Answer) -> Iterator[str]:
    if (speedup := answer["speedup"]) is not None and speedup["base_ranks"] != answer["ranks"]:
        base = f"on {plural(speedup['base_ranks'], 'rank')} ({span(speedup['base_seconds'])})"
        if speedup["ratio"] >= 1 or speedup["base_ranks"] > answer["ranks"]:
            efficiency = share(speedup["efficiency"])
            yield f"That is {speedup['ratio']:.3g} times as fast as {base}, an efficiency of {efficiency}."
        else:
            longer = f"{1 / speedup['ratio']:.3g}"
            yield f"That is as long as {base}." if longer == "1" else f"That is {longer} times as long as {base}."
    if answer["parts"]:
        expected, parts = answer["expected_seconds"], answer["parts"].items()
        shares = [f"{share(seconds / expected)} {part}" for part, seconds in parts if seconds > 0]
        yield f"It consists of {'; '.join(shares)}."
    amdahl = answer["amdahl"]
    if amdahl is not None and amdahl["parallel"][2] - amdahl["parallel"][0] < VAGUE_SHARE:
        lower, expected, upper = (share(one) for one in amdahl["parallel"])
        yield (
            f"By Amdahl's law {expected} of the work is parallel ({lower} to {upper}; from runs on up to"
            f" {plural(amdahl['until_ranks'], 'rank')}). {_overhead(amdahl)}"
        )
    if (pays := answer["pays"]) is not None:
        saved = share(1 - 1 / pays["gain"])
        if pays["ends"] == "rule" and pays["until_ranks"] == pays["from_ranks"]:
            yield (
                f"More ranks do not pay: twice as many as {pays['from_ranks']:,}, the fewest that were run, would save"
                f" less than {saved} of the time."
            )
        elif pays["ends"] == "rule":
            yield (
                f"More ranks pay up to {pays['until_ranks']:,}: from there on, twice as many would save less than"
                f" {saved} of the time."
            )
        else:
            yield (
                f"More ranks pay up to {pays['until_ranks']:,} at least, twice as many saving {saved} of the time or"
                " more; beyond that there is no prediction, or none that is certain enough."
            )


def _overhead(amdahl: Answer) -> str:
    """The time at the largest scale, compared with Amdahl's law."""
    lower, expected, upper = amdahl["time_over_law"]
    where = f"on {plural(amdahl['ranks'], 'rank')}"
    if lower > 1:
        return f"Runs {where} take {expected:.3g} times as long as it gives ({lower:.3g} to {upper:.3g})."
    if upper < 1:
        return f"Runs {where} take {expected:.3g} times as long as it gives: they are faster."
    return f"Runs {where} agree with it."


def known_params(answer: Answer, use: str) -> Iterator[str]:
    """The parameters that have been run, one set per line. use: as of `sentences`."""
    if answer["others"]:
        yield f"Parameters that have been run{use}:"
        yield from (f"  {_runs(other)}" for other in answer["others"])


def _runs(known: Answer) -> str:
    ranks = f"{known['least_ranks']:,} to {known['most_ranks']:,}"
    ranks = plural(known["most_ranks"], "rank") if known["least_ranks"] == known["most_ranks"] else f"{ranks} ranks"
    lower, upper = span(known["least_seconds"]), span(known["most_seconds"])
    seconds = lower if lower == upper else f"{lower} to {upper}"
    params = " ".join(f"{name}={shlex.quote(text)}" for name, text in sorted(known["values"].items()))
    return f"{params or 'none'}: {plural(known['runs'], 'run')} on {ranks}, {seconds}"


def _basis(basis: Answer) -> str:
    if basis["seconds"] is not None:
        shortest, longest = map(span, basis["seconds"])
        took = shortest if shortest == longest else f"{shortest} to {longest}"
        curve = f", and on the curve of all {basis['scales']} scales" if basis["scales"] > 1 else ""
        return f"This rests on {plural(basis['runs'], 'run')} on as many ranks, which took {took}{curve}."
    if basis["runs"]:
        own = f"{plural(basis['runs'], 'run')} at {plural(basis['scales'], 'scale')} up to"
        own = f"{own} {plural(basis['largest_ranks'], 'rank')}"
    else:
        own = "no run with these parameters"
    others = basis["pooled_from"]
    pooled = f" and {plural(others, 'other problem')} of the application" if others else ""
    return f"This rests on {own}{pooled}.{_trend(basis['model'])}"


def _trend(model: Mapping[str, float]) -> str:
    """What the kinds of curves mean for the time on more ranks, the likeliest first; nothing of curves over sizes."""
    shares = {text: sum(model.get(kind, 0.0) for kind in kinds) for text, kinds in TRENDS.items()}
    if sum(shares.values()) < 1 / 2:
        return ""
    ordered = sorted(((weight, text) for text, weight in shares.items() if weight >= MIN_SHARE), reverse=True)
    return f" On more ranks the time {' or '.join(f'{text} ({round(100 * weight)} %)' for weight, text in ordered)}."
