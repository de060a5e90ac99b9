"""The installed shim: the shared object that is preloaded into applications. Its sources are in agent/shim."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

LIBRARY = "libbarograph.so"
HOOK = Path(__file__).resolve().with_name("training")


def preload(path: Path, others: str) -> str:
    """The value of LD_PRELOAD: the shim, then the libraries in `others`. Raises ValueError for an unusable path."""
    if {" ", ":"} & set(str(path)):
        raise ValueError(f"the shim is {str(path)!r}, expected a path without space or colon, which cut LD_PRELOAD")
    return " ".join(filter(None, [str(path), others]))


def python_path(others: str) -> str:
    """The value of PYTHONPATH: the hook of training programs, then the folders in `others`."""
    return ":".join(filter(None, [str(HOOK), others]))


def asan_options(theirs: str) -> str:
    """ASAN_OPTIONS under which programs linked to AddressSanitizer accept the shim before its library.

    >>> asan_options("detect_leaks=0")
    'detect_leaks=0:verify_asan_link_order=0'
    """
    return ":".join(filter(None, (theirs, "verify_asan_link_order=0")))


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether the user has disabled recording, by BAROGRAPH_DISABLE."""
    return environment.get("BAROGRAPH_DISABLE", "0") not in ("", "0")


def library() -> Path:
    """The path of the installed shim.

    Raises FileNotFoundError if there is none: the package was copied instead of installed.
    """
    path = Path(__file__).resolve().with_name(LIBRARY)
    if not path.is_file():
        raise FileNotFoundError(
            f"the shim is not installed: {path} does not exist. "
            f"Install barograph with pip, or build it: python agent/shim/build.py {path}"
        )
    return path


if __name__ == "__main__":
    try:
        print(library())
    except FileNotFoundError as error:
        sys.exit(str(error))
