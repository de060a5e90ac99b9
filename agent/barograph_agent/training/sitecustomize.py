"""Imported by every Python that `barograph run` starts: prepares the hook of training programs, and makes way for the
sitecustomize that would be imported without it.

This folder is the first entry of PYTHONPATH. Any version of Python can import this module.
"""

import os
import sys


def _make_way() -> None:
    """Import the module of this name that follows in the path, if there is one."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != own]
    this = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if getattr(error, "name", __name__) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)


try:
    import barograph_training  # type: ignore[import-not-found]

    barograph_training.install()
except Exception:  # the program goes on without
    pass
_make_way()
