"""`barograph demo`: watches LAMMPS runs, disturbs one of them, and reports how it was detected."""

from barograph.demo.command import main

__all__ = ["main"]
