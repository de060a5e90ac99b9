"""Variables for a launcher of MPI programs, and those that it must be told to pass on to ranks on other nodes.

MPICH's, Intel's and Slurm's pass on their whole environment. Open MPI's passes on what `-x` names, or the parameter
`mca_base_env_list`; both at once are an error in Open MPI 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

LIST: Final = "OMPI_MCA_mca_base_env_list"
LAUNCH_VARIABLE: Final = "BAROGRAPH_LAUNCH"
"""The number of a launch within a run. Where a script launches, the shim sets it in the launcher."""
_OPENMPI: Final = ("mpiexec", "mpirun", "orterun", "prterun")
MPI_LAUNCHERS: Final = (*_OPENMPI, "prun", "srun", "aprun", "jsrun", "flux")
"""Those that the shim numbers too (`agent/shim/launch.c`)."""
_PREFIX: Final = "BAROGRAPH_"


def forwarding(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to add to the environment of a command. environment: with those to be passed on.

    Empty unless the command is a launcher: a script may use `-x`. Also where a word is `-x`, be it the program's, or
    the list is given.

    >>> forwarding(["mpirun", "-n", "2", "./app"], {"LD_PRELOAD": "l", "BAROGRAPH_RANKS": "all", "HOME": "/"})
    {'OMPI_MCA_mca_base_env_list': 'LD_PRELOAD;BAROGRAPH_RANKS'}
    >>> forwarding(["mpirun", "-x", "OMP_NUM_THREADS", "./app"], {"LD_PRELOAD": "l"})
    {}
    """
    launcher = _program(command)
    given = LIST in environment or any(word in ("-x", "--x") or "mca_base_env_list" in word for word in command)
    if launcher not in _OPENMPI or given:
        return {}
    names = [name for name in environment if name == "LD_PRELOAD" or name.startswith(_PREFIX)]
    return {LIST: ";".join(names)}


def launching(command: Sequence[str]) -> dict[str, str]:
    """The number of the launch, where the command is a launcher and so the only one.

    >>> launching(["mpiexec.hydra", "-n", "2", "./app"]), launching(["sh", "job.sh"])
    ({'BAROGRAPH_LAUNCH': '0'}, {})
    """
    return {LAUNCH_VARIABLE: "0"} if _program(command) in MPI_LAUNCHERS else {}


def _program(command: Sequence[str]) -> str:
    """Without the name of an implementation, as in mpiexec.hydra."""
    return Path(command[0]).name.partition(".")[0] if command else ""
