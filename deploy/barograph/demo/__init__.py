"""`barograph demo`: real LAMMPS runs, one of them disturbed, and the story of how it was caught."""

from barograph.demo.command import main

__all__ = ["main"]
