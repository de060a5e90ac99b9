"""Numbers in words and small input files: sizes of problems may be among them. What is around them becomes a form."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barograph_agent.work.command import keyed

MAX_NUMBERS: Final = 64
"""A text with more numbers is data, and no list of settings."""
MAX_TEXT_BYTES: Final = 16_384
_NUMBER: Final = rb"\d{1,9}(?:\.\d{0,9})?(?:[eE][+-]?\d{1,2})?"
_VALUE: Final = re.compile(rb"%s(?:[x,:*]%s)*" % (_NUMBER, _NUMBER))
_ATTACHED: Final = re.compile(rb"(-[A-Za-z])(%s)" % _NUMBER)
_IN_VALUE: Final = re.compile(_NUMBER)
_IN_TEXT: Final = re.compile(rb"(?<![\w.+-])%s(?![\w.])" % _NUMBER)
MARK: Final = b"#"


class Numbers(NamedTuple):
    """The numbers of a text in their order, as they are written, and the text with a mark for each."""

    values: tuple[str, ...]
    form: bytes


def of_word(word: bytes) -> Numbers | None:
    """The numbers of a word that is a number, several with x, comma, colon or star between, or has such a value.

    None for other words: a number within a name or a password is not taken out of it.

    >>> of_word(b"--mesh=64x64x32")
    Numbers(values=('64', '64', '32'), form=b'--mesh=#x#x#')
    >>> of_word(b"-s20")
    Numbers(values=('20',), form=b'-s#')
    >>> of_word(b"hunter2")
    """
    key, value = keyed(word)
    if attached := _ATTACHED.fullmatch(word):
        return Numbers((attached[2].decode(),), attached[1] + MARK)
    if not _VALUE.fullmatch(value):
        return None
    found = _found(value, _IN_VALUE)
    return found and found._replace(form=key + b"=" + found.form if key else found.form)


def of_text(text: bytes) -> Numbers | None:
    """The numbers of a small text that stand by themselves. None if it has none, too many, or is binary.

    >>> of_text(b"mesh 64 64\\nsteps 100 # v2.1a\\n")
    Numbers(values=('64', '64', '100'), form=b'mesh # #\\nsteps # # v2.1a\\n')
    """
    return None if len(text) > MAX_TEXT_BYTES or b"\0" in text else _found(text, _IN_TEXT)


def _found(text: bytes, pattern: re.Pattern[bytes]) -> Numbers | None:
    values = tuple(one.decode() for one in pattern.findall(text))
    return Numbers(values, pattern.sub(MARK, text)) if 0 < len(values) <= MAX_NUMBERS else None
