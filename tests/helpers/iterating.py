"""Debian's programs that report how many iterations they have made, without a collective of all ranks in each."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.applications import Application, debian, species

OUTPUT = "output.txt"
SWAPS = 500
SCHWARZ = """\
mesh Th = square(60, 60, [mpirank + x*1.1, y]);
fespace Vh(Th, P1);
Vh u = 0, v, g = 0;
problem P(u, v, solver=CG) = int2d(Th)(dx(u)*dx(v) + dy(u)*dy(v)) - int2d(Th)(v) + on(1, 3, u=0) + on(2, 4, u=g);
for (int i = 0; i < %d; i++) {
  P;
  real[int] s(u.n), r(u.n);
  s = u[];
  if (mpirank == 0) { processor(1) << s; processor(1) >> r; } else { processor(0) >> r; processor(0) << s; }
  g[] = r;
  if (mpirank == 0) cout << "swap " << i + 1 << endl;
}
"""
SELECTION = """\
ExecuteAFile("/usr/share/hyphy/TemplateBatchFiles/SelectionAnalyses/FEL.bf",
             {"--alignment": "%s", "--tree": "%s", "--code": "Universal"});
"""
TREES = 60
WATER = """\
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
"""
STEPS = 5000
DYNAMICS = f"integrator = md\nnsteps = {STEPS}\ndt = 0.002\ncoulombtype = PME\nnstcalcenergy = 100\nnstlog = 1000\n"
POOL = """\
import time
from mpi4py.futures import MPIPoolExecutor

def work(number):
    end = time.time() + 0.03
    while time.time() < end:
        pass
    return number

if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        for number in pool.map(work, range(1000)):
            print("task", number)
"""
CONJUGATE_GRADIENTS = """\
import sys
import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc

side = 300
matrix = PETSc.Mat().createAIJ([side**2, side**2], nnz=5)
first, end = matrix.getOwnershipRange()
for row in range(first, end):
    matrix[row, row] = 4
    for other in (row - side, row + side, row - 1 if row % side else -1, row + 1 if (row + 1) % side else -1):
        if 0 <= other < side**2:
            matrix[row, other] = -1
matrix.assemble()
right, solution = matrix.createVecLeft(), matrix.createVecRight()
right.set(1.0)
solver = PETSc.KSP().create()
solver.setOperators(matrix)
solver.setType("pipecg")
solver.getPC().setType("jacobi")
solver.setTolerances(rtol=1e-14, max_it=20000)
solver.solve(right, solution)
if PETSc.COMM_WORLD.rank == 0:
    print("iterations", solver.getIterationNumber())
"""


WAVEGUIDE = """\
import meep

guide = meep.Block(meep.Vector3(meep.inf, 1, meep.inf), center=meep.Vector3(), material=meep.Medium(epsilon=12))
source = meep.Source(meep.ContinuousSource(frequency=0.15), component=meep.Ez, center=meep.Vector3(-7, 0))
run = meep.Simulation(
    cell_size=meep.Vector3(16, 8), boundary_layers=[meep.PML(1.0)], resolution=20, geometry=[guide], sources=[source]
)
run.run(until=150)
"""
SWAPPED = """\
require "mpi"
MPI.Init
world = MPI::Comm::WORLD
other = 1 - world.rank
mine, theirs = NArray.sfloat(64), NArray.sfloat(64)
2000.times do
  ended = Time.now + 0.004
  nil while Time.now < ended
  world.Send(mine, other, 1) if world.rank == 0
  world.Recv(theirs, other, 1)
  world.Send(mine, other, 1) if world.rank == 1
end
puts "swaps 2000" if world.rank == 0
MPI.Finalize
"""
DEALT = """\
library(Rmpi)
rank <- mpi.comm.rank(0)
workers <- mpi.comm.size(0) - 1
if (rank == 0) {
  for (worker in 1:workers) mpi.send.Robj(worker, worker, 1, comm = 0)
  for (done in 1:600) {
    mpi.recv.Robj(mpi.any.source(), mpi.any.tag(), comm = 0)
    task <- if (done + workers <= 600) done + workers else -1
    mpi.send.Robj(task, mpi.get.sourcetag()[1], 1, comm = 0)
  }
  cat("tasks", done, "\\n")
} else repeat {
  task <- mpi.recv.Robj(0, mpi.any.tag(), comm = 0)
  if (task < 0) break
  end <- Sys.time() + 0.03
  while (Sys.time() < end) sqrt(1:1000)
  mpi.send.Robj(task^2, 0, 1, comm = 0)
}
mpi.quit()
"""
ROWS = """\
import time
from mpi4py import MPI
import h5py
import numpy

world = MPI.COMM_WORLD
with h5py.File("rows.h5", "w", driver="mpio", comm=world) as file:
    rows = file.create_dataset("rows", (600, 2000))
    for number in range(600):
        time.sleep(0.02)
        with rows.collective:
            rows[number, 1000 * world.rank : 1000 * (world.rank + 1)] = numpy.full(1000, number)
if world.rank == 0:
    print("rows", 600)
"""


@dataclass(frozen=True)
class IteratingProgram:
    """A program, and how many iterations of rank 0, or tasks of all workers, a run in a folder has reported.

    That of the folder's OUTPUT, where the program's standard output is, or of a file that the program writes.
    """

    application: Application
    iterations: Callable[[Path], int]


def freefem() -> IteratingProgram:
    """FreeFEM: two subdomains, which send each other what they have at the common border."""
    program = ["/usr/bin/FreeFem++-mpi", "-nw", "-v", "0", "schwarz.edp"]
    made = debian("freefem++", 2, program, {"schwarz.edp": SCHWARZ % SWAPS})
    return IteratingProgram(made, lambda folder: len(_all(r"^swap \d+$", folder)))


def hyphy(ranks: int = 3) -> IteratingProgram:
    """HyPhy: selection at each codon of an alignment, which a master deals out."""
    program = ["/usr/bin/HYPHYMPI", "fel.bf"]
    files = {"fel.bf": SELECTION % ("codons.fas", "tree.nwk"), **_codons(places=220)}
    made = debian("hyphy-mpi", ranks, program, files)
    # Its progress is on standard error.
    made = replace(made, command=["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *made.command])
    return IteratingProgram(made, lambda folder: max(map(int, _all(r"site pattern (\d+)/", folder))))


def mplrs() -> IteratingProgram:
    """lrslib: the facets of a convex hull, by subtrees that a master deals out."""
    rng = random.Random(1)
    points = [[1, *(rng.randint(-50, 50) for _ in range(9))] for _ in range(72)]
    rows = "\n".join(" ".join(map(str, point)) for point in points)
    hull = f"hull\nV-representation\nbegin\n{len(points)} 10 integer\n{rows}\nend\n"
    made = debian("mplrs", 3, ["/usr/bin/mplrs", "hull.ext"], {"hull.ext": hull})
    return IteratingProgram(made, lambda folder: int(_all(r"Total number of jobs: (\d+)", folder)[-1]))


def phyml() -> IteratingProgram:
    """PhyML: a tree of each bootstrap sample, each rank those of its own."""
    program = ["/usr/bin/phyml-mpi", "-i", "species.phy", "-b", str(TREES), "--no_memory_check"]
    made = debian("phyml", 2, program, {"species.phy": species(14, 400)})
    return IteratingProgram(made, lambda folder: int(_all(r"\] +(\d+)/ +\d+$", folder)[-1]) // 2)


def gromacs() -> IteratingProgram:
    """GROMACS: molecules of water, with a rank for the long-range part of the forces."""
    setup = [
        ["/usr/bin/gmx", "-quiet", "solvate", "-cs", "spc216", "-box", "3.2", "3.2", "3.2", "-o", "water.gro", "-p",
         "water.top"],
        ["/usr/bin/gmx", "-quiet", "grompp", "-f", "run.mdp", "-c", "water.gro", "-p", "water.top", "-o", "run.tpr"],
    ]  # fmt: skip
    program = ["/usr/bin/gmx_mpi", "mdrun", "-npme", "1", "-s", "run.tpr", "-notunepme", "-ntomp", "1"]
    files = {"water.top": WATER, "run.mdp": DYNAMICS}
    made = debian("gromacs-openmpi", 3, program, files, setup=setup, needs={"/usr/bin/gmx": "gromacs"})
    return IteratingProgram(made, lambda folder: int(_all(r"Statistics over (\d+) steps", folder, "md.log")[-1]))


def pool(ranks: int = 3) -> IteratingProgram:
    """mpi4py's pool of workers: tasks of 30 ms."""
    program = ["/usr/bin/python3", "-m", "mpi4py.futures", "tasks.py"]
    needs = {"/usr/lib/python3/dist-packages/mpi4py": "python3-mpi4py"}
    made = debian("python3-mpi4py", ranks, program, {"tasks.py": POOL}, needs=needs)
    return IteratingProgram(made, lambda folder: len(_all(r"^task \d+$", folder)))


def conjugate_gradients(ranks: int = 2) -> IteratingProgram:
    """PETSc's pipelined conjugate gradients: each iteration waits for an Iallreduce."""
    program = ["/usr/bin/python3", "solve.py"]
    needs = {"/usr/lib/petsc/lib/python3/dist-packages/petsc4py": "python3-petsc4py-real"}
    made = debian("python3-petsc4py", ranks, program, {"solve.py": CONJUGATE_GRADIENTS}, needs=needs)
    return IteratingProgram(made, lambda folder: int(_all(r"^iterations (\d+)$", folder)[-1]))


def meep() -> IteratingProgram:
    """Meep: an electromagnetic wave along a guide; each time step the subdomains send each other their borders."""
    needs = {"/usr/lib/python3/dist-packages/meep": "python3-meep-mpi-default"}
    made = debian("meep", 2, ["/usr/bin/python3", "guide.py"], {"guide.py": WAVEGUIDE}, needs=needs)
    return IteratingProgram(made, lambda folder: int(_all(r"\((\d+) timesteps\)", folder)[-1]))


def ruby() -> IteratingProgram:
    """Ruby: two ranks that send each other an array."""
    needs = {"/usr/share/doc/ruby-mpi": "ruby-mpi"}
    made = debian("ruby-mpi", 2, ["/usr/bin/ruby", "swaps.rb"], {"swaps.rb": SWAPPED}, needs=needs)
    return IteratingProgram(made, lambda folder: int(_all(r"^swaps (\d+)$", folder)[-1]))


def rmpi() -> IteratingProgram:
    """R: tasks of 30 ms, which a master deals out."""
    needs = {"/usr/lib/R/site-library/Rmpi": "r-cran-rmpi"}
    made = debian("r-cran-rmpi", 3, ["/usr/bin/Rscript", "dealt.R"], {"dealt.R": DEALT}, needs=needs)
    return IteratingProgram(made, lambda folder: int(_all(r"^tasks (\d+)", folder)[-1]))


def parallel_hdf5() -> IteratingProgram:
    """h5py on parallel HDF5: rows that both ranks write together."""
    needs = {"/usr/share/doc/python3-h5py-mpi": "python3-h5py-mpi"}
    made = debian("python3-h5py-mpi", 2, ["/usr/bin/python3", "rows.py"], {"rows.py": ROWS}, needs=needs)
    return IteratingProgram(made, lambda folder: int(_all(r"^rows (\d+)$", folder)[-1]))


def _all(pattern: str, folder: Path, name: str = OUTPUT) -> list[str]:
    return re.findall(pattern, (folder / name).read_text(errors="replace"), re.MULTILINE)


def _codons(places: int) -> dict[str, str]:
    """An alignment of twelve made-up genes of so many codons, and the tree that they descend by."""
    rng = random.Random(3)
    bases = "ACGT"
    known = [a + b + c for a in bases for b in bases for c in bases if a + b + c not in ("TAA", "TAG", "TGA")]
    genes: list[str] = []

    def descend(gene: list[str], generations: int) -> str:
        gene = [rng.choice(known) if rng.random() < 0.15 else codon for codon in gene]
        if not generations:
            genes.append("".join(gene))
            return f"S{len(genes)}:0.1"
        return f"({descend(gene, generations - 1)},{descend(gene, generations - 1)}):0.1"

    first = [rng.choice(known) for _ in range(places)]
    tree = ",".join(descend(first, 2) for _ in range(3))
    alignment = "".join(f">S{number}\n{gene}\n" for number, gene in enumerate(genes, 1))
    return {"codons.fas": alignment, "tree.nwk": f"({tree});"}
