"""Declaration of settings: each is one field of its daemon's `Section`.

    class AlertsSettings(Section, frozen=True):
        table = "alerts"
        alpha: Annotated[float, Meta(gt=0, lt=1), Form("SHARE", "between 0 and 1"), Option("bound on ...")] = 0.01

Command-line option, environment variable, key in the file, checks and the reference page derive from it.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

import msgspec
from msgspec import inspect

REQUIRED: Final = "required"
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_KINDS: Final[dict[Any, str]] = {float: "number", int: "whole number", tuple: "list"}
_PARSERS: Final[dict[str, Callable[[str], Any]]] = {"number": float, "whole number": int}


class Form(NamedTuple):
    """Format of a setting's value.

    metavar: its name in `--help`. expected: range or format in words. read: parser, for types that msgspec does not
    parse from text; raises ValueError or ArgumentTypeError, which state the text and what was expected. kind: the type
    in the file, if it does not follow from the field's type.
    """

    metavar: str
    expected: str
    read: Callable[[str], Any] | None = None
    kind: str = ""


class Option(NamedTuple):
    """Description of a setting.

    reloads: whether a running daemon applies a new value. variable: the environment variable; default the section's
    prefix and the name. otherwise: what applies if there is no value and no default. alone: the value of an option
    given without one; None if it requires one.
    """

    meaning: str
    reloads: bool = False
    variable: str = ""
    otherwise: str = "none"
    alone: str | None = None


class Setting(NamedTuple):
    """One key of a section. kind: its type in the file: text, number, whole number, size or list."""

    name: str
    kind: str
    type: Any
    default: Any
    form: Form
    about: Option
    variable: str

    @property
    def option(self) -> str:
        """The option on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def default_text(self) -> str:
        """The default as text that `read` parses; empty for none."""
        if self.default is None:
            return ""
        if self.kind == "size" and self.default:
            return f"{self.default // _UNITS['M']}M"
        return as_text(self.default)

    def read(self, text: str) -> Any:
        """Parse a value. Raises ValueError or ArgumentTypeError, which state the text and what was expected."""
        if self.form.read is not None:
            return self.form.read(text)
        if self.kind == "list":
            item, _ = get_args(self.type)
            allowed = f"one of {', '.join(get_args(item))}"
            return tuple(_convert(word.strip(), str, item, allowed) for word in text.split(",") if word.strip())
        return _convert(text, _PARSERS.get(self.kind, str), self.type, _expected(self.type))


class Section(msgspec.Struct, frozen=True):
    """The settings of one daemon, or of the agent: a table of the file.

    per_application: settings that tables of applications may override. variables: the prefix of the environment
    variables; default BAROGRAPH and the table's name.
    """

    table: ClassVar[str]
    variables: ClassVar[str] = ""
    per_application: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Check settings that depend on each other. Raises ConfigError."""


@cache
def declared(section: type[Section]) -> dict[str, Setting]:
    """The settings of a section by name, in the order of declaration."""
    prefix = section.variables or f"BAROGRAPH_{section.table}"
    return {field.name: _setting(prefix, field) for field in msgspec.structs.fields(section)}


def as_text(value: Any) -> str:
    """Format a value as text."""
    match value:
        case (str(host), int(port)):
            return f"{host}:{port}"
        case tuple():
            return ",".join(value)
        case float():
            return f"{value:g}"
    return str(value)


def _setting(prefix: str, field: msgspec.structs.FieldInfo) -> Setting:
    hint, *notes = get_args(field.type)
    if NoneType in get_args(hint):
        hint, _ = get_args(hint)
    about = next(note for note in notes if isinstance(note, Option))
    *_, form = (note for note in notes if isinstance(note, Form))
    constraints = [note for note in notes if isinstance(note, msgspec.Meta)]
    return Setting(
        name=field.name,
        kind=form.kind or _KINDS.get(get_origin(hint) or hint, "text"),
        type=Annotated[hint, *constraints] if constraints else hint,
        default=field.default,
        form=form,
        about=about,
        variable=about.variable or f"{prefix}_{field.name}".upper(),
    )


def _convert(text: str, parse: Callable[[str], Any], kind: Any, expected: str) -> Any:
    try:
        value = msgspec.convert(parse(text), kind)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{text!r}, expected {expected}")
    return value


def _expected(kind: Any) -> str:
    """The values that a type accepts, in words."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    match inspect.type_info(kind):
        case inspect.IntType(ge=least):
            return "a whole number" if least is None else f"a whole number of at least {least}"
        case inspect.FloatType(gt=None, ge=low, lt=high):
            return f"a number of at least {low:g}" if high is None else f"a number from {low:g} to {high:g}"
        case inspect.FloatType(gt=low, lt=high):
            return f"a number above {low:g}" if high is None else f"a number between {low:g} and {high:g}"
    return "a text"


def size(text: str) -> int:
    """Parse a size in bytes, with an optional suffix K, M, G or T (powers of 1024). Raises ArgumentTypeError."""
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, expected bytes, or as in 500G with K, M, G or T")
    return int(match[1]) * _UNITS[match[2]]


def path(text: str) -> Path:
    """Parse a path. Raises ValueError."""
    if not text:
        raise ValueError(f"{text!r}, expected a path")
    return Path(text)


Size: TypeAlias = Annotated[int, Form("SIZE", "bytes, or as in 500G", size, "size")]
Directory: TypeAlias = Annotated[Path | None, Form("DIR", "a directory", path)]
File: TypeAlias = Annotated[Path | None, Form("FILE", "a path", path)]
