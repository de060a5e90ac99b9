"""`barograph instrument`: probes in C and C++ sources, whose features predict the runtime."""

from barograph.instrument.command import main

__all__ = ["main"]
