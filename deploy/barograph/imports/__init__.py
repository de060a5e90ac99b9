"""`barograph import`: imports existing run history into the log."""

from barograph.imports.command import main

__all__ = ["main"]
