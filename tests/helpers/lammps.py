"""An input of LAMMPS: a Lennard-Jones fluid of 4 `cells`**3 atoms at a constant temperature."""

from __future__ import annotations


def fluid(cells: int, steps: int) -> str:
    """The text of the input file."""
    return f"""\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nvt temp 1.0 1.0 0.1
run {steps}
"""
