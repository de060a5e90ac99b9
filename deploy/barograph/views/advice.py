"""An answer of the modeler's in words: how long, what limit to ask for, whether more ranks pay, what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barograph.views.log import limits
from barograph.views.words import listed, plural, share, span, stop, time_limit

Said = Mapping[str, Any]
"""What `GET /predict` answers, as `barograph_modeler.serving.answer` makes it."""


def sentences(said: Said) -> list[str]:
    """The answer, a line for each thing that it says."""
    return list(_sentences(said))


def _sentences(said: Said) -> Iterator[str]:
    where = f"{plural(said['ranks'], 'rank')} of {said['cluster']}"
    if said["nodes"]:
        where += f", {plural(said['nodes'], 'node')},"
    params = listed(said["params"])
    name = f"{said['app']} ({params})" if params else said["app"]
    if said["refusal"] is not None:
        yield f"No prediction for {name} on {where.rstrip(',')}: {stop(said['refusal'])}"
        yield from _features(said) if "features" in said else _others(said)
        return
    lower, expected, upper = map(span, limits(said))
    yield f"{name} on {where} should take {expected}; 95 of 100 runs take {lower} to {upper}."
    if (limit := said["limit"]) is not None:
        asked = time_limit(limit["request_seconds"])
        yield f"Ask for {asked}: at most {share(limit['risk'])} of such runs need longer."
    else:
        yield "What time limit to ask for takes more runs to say, or a larger --risk."
    if "features" in said:
        yield from _features(said)
        return
    yield from _worth(said)
    yield _rests(said["basis"])
    yield from _others(said)
    yield from (f"Taken for granted: {text[:1].lower()}{stop(text[1:])}" for text in said["conditions"])
    yield from (f"Beware: {stop(text)}" for text in said["warnings"])


def _features(said: Said) -> Iterator[str]:
    """What a model of features rests on, and what it made of those that were given."""
    basis = said["basis"]
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
    for what in ("missing", "unused"):
        if said[what]:
            yield f"Features that are {what}: {', '.join(said[what])}."


def _worth(said: Said) -> Iterator[str]:
    if (speedup := said["speedup"]) is not None and speedup["base_ranks"] != said["ranks"]:
        yield (
            f"That is {speedup['ratio']:.3g} times as fast as on {plural(speedup['base_ranks'], 'rank')}"
            f" ({span(speedup['base_seconds'])}), an efficiency of {share(speedup['efficiency'])}."
        )
    if (pays := said["pays"]) is not None:
        saved = share(1 - 1 / pays["gain"])
        if pays["ends"] == "rule":
            yield (
                f"More ranks pay up to {pays['until_ranks']:,}: from there on, twice as many would save less than"
                f" {saved} of the time."
            )
        else:
            yield (
                f"More ranks pay up to {pays['until_ranks']:,} at least, twice as many saving {saved} of the time or"
                " more; further out nothing can be said."
            )


def _others(said: Said) -> Iterator[str]:
    if said["others"]:
        known = "; ".join(other or "none" for other in said["others"])
        yield f"Nobody has run it with these parameters. Parameters that have been run: {known}."


def _rests(basis: Said) -> str:
    if basis["runs"]:
        own = f"{plural(basis['runs'], 'run')} at {plural(basis['scales'], 'scale')} up to"
        own = f"{own} {plural(basis['largest_ranks'], 'rank')}"
    else:
        own = "no run with these parameters"
    others = basis["pooled_from"]
    pooled = f" and {plural(others, 'other problem')} of the application" if others else ""
    shares = [(weight, law) for law, weight in basis["model"].items() if weight >= 0.005]
    model = ", ".join(law if len(shares) == 1 else f"{share(weight)} {law}" for weight, law in shares)
    return f"This rests on {own}{pooled}. Model: {model}."
