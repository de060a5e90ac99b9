"""Digests that can be compared and not read: of words, names and contents, under the salt of a site."""

from __future__ import annotations

import hashlib
from typing import Final

WORD_BYTES: Final = 6
CONTENT_BYTES: Final = 8


class Salt:
    """Makes digests. Equal things have equal digests under the same secret; those of other secrets tell nothing."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.blake2b(secret, digest_size=32).digest()

    def word(self, word: bytes) -> str:
        """The digest of a word of a command line: 12 hex digits."""
        return self._digest(b"word", word, WORD_BYTES)

    def program(self, name: bytes) -> str:
        """The digest of a program's name: 16 hex digits."""
        return self._digest(b"program", name, CONTENT_BYTES)

    def build(self, build_id: bytes) -> str:
        """The digest of a build id: 16 hex digits."""
        return self._digest(b"build", build_id, CONTENT_BYTES)

    def content(self, checksum: bytes) -> str:
        """The digest of a content with this checksum: 16 hex digits."""
        return self._digest(b"content", checksum, CONTENT_BYTES)

    def _digest(self, kind: bytes, data: bytes, size: int) -> str:
        return hashlib.blake2b(data, digest_size=size, key=self._key, person=kind).hexdigest()
