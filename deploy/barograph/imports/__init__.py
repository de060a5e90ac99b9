"""`barograph import`: run history that is there already, into the log."""

from barograph.imports.command import main

__all__ = ["main"]
