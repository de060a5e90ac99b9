"""`barograph instrument`: probes in C and C++ sources that tell early how long a run will take."""

from barograph.instrument.command import main

__all__ = ["main"]
