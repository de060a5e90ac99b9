"""An answer of the modeler's in words: how long, what limit to ask for, whether more ranks pay, what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Said = Mapping[str, Any]
"""What `GET /predict` answers, as `barograph_modeler.serving.answer` makes it."""


def sentences(said: Said) -> list[str]:
    """The answer, a line for each thing that it says."""
    return list(_sentences(said))


def _sentences(said: Said) -> Iterator[str]:
    where = f"{plural(said['ranks'], 'rank')} of {said['cluster']}"
    if said["nodes"]:
        where += f", {plural(said['nodes'], 'node')},"
    params = ", ".join(f"{name}={value}" for name, value in sorted(said["params"].items()))
    name = f"{said['app']} ({params})" if params else said["app"]
    if said["refusal"] is not None:
        yield f"No prediction for {name} on {where.rstrip(',')}: {_stop(said['refusal'])}"
        yield from _features(said) if "features" in said else _others(said)
        return
    lower, expected, upper = (span(said[f"{limit}_seconds"]) for limit in ("lower", "expected", "upper"))
    yield f"{name} on {where} should take {expected}; 95 of 100 runs take {lower} to {upper}."
    if (limit := said["limit"]) is not None:
        yield f"Ask for {clock(limit['request_seconds'])}: at most {percent(limit['risk'])} of such runs need longer."
    else:
        yield "What time limit to ask for takes more runs to say, or a larger --risk."
    if "features" in said:
        yield from _features(said)
        return
    yield from _worth(said)
    yield _rests(said["basis"])
    yield from _others(said)
    yield from (f"Taken for granted: {text[:1].lower()}{_stop(text[1:])}" for text in said["conditions"])
    yield from (f"Beware: {_stop(text)}" for text in said["warnings"])


def _features(said: Said) -> Iterator[str]:
    """What a model of features rests on, and what it made of those that were given."""
    basis = said["basis"]
    ordered = sorted(basis["features"].items(), key=lambda item: -item[1])
    shares = ", ".join(f"{name} ({percent(round(weight, 3))})" for name, weight in ordered)
    yield f"This rests on {plural(basis['runs'], 'run')} and on these features, by importance: {shares}."
    if basis["error"] is not None:
        scales = basis["scaling_error"]
        other = "scales alone gave no answer" if scales is None else f"by {percent(scales)} from scales alone"
        yield (
            f"Model {basis['version']} missed the {basis['scored']} newest runs, when it had learned the older ones,"
            f" by {percent(basis['error'])}; {other}."
        )
    for what in ("missing", "unused"):
        if said[what]:
            yield f"Features that are {what}: {', '.join(said[what])}."


def _worth(said: Said) -> Iterator[str]:
    if (speedup := said["speedup"]) is not None and speedup["base_ranks"] != said["ranks"]:
        yield (
            f"That is {speedup['ratio']:.3g} times as fast as on {plural(speedup['base_ranks'], 'rank')}"
            f" ({span(speedup['base_seconds'])}), an efficiency of {percent(speedup['efficiency'])}."
        )
    if (pays := said["pays"]) is not None:
        saved = percent(1 - 1 / pays["gain"])
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
    model = ", ".join(law if len(shares) == 1 else f"{percent(weight)} {law}" for weight, law in shares)
    return f"This rests on {own}{pooled}. Model: {model}."


def span(seconds: float) -> str:
    """A duration as people say it, to two or three digits.

    >>> span(0.01234), span(12.34), span(200), span(93784)
    ('0.0123 s', '12.3 s', '3 min 20 s', '26 h 3 min')
    """
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    if round(seconds) < 3600:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def clock(seconds: int) -> str:
    """A time limit as batch systems take it.

    >>> clock(93780)
    '26:03:00'
    """
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def percent(ratio: float) -> str:
    """A share in per cent, to three digits.

    >>> percent(0.01), percent(0.4567), percent(1.5)
    ('1 %', '45.7 %', '150 %')
    """
    return f"{100 * ratio:.3g} %" if ratio < 10 else f"{100 * ratio:,.0f} %"


def plural(count: int, noun: str) -> str:
    """A number of things.

    >>> plural(1, "rank"), plural(2048, "rank")
    ('1 rank', '2,048 ranks')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _stop(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
