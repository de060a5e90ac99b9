"""Variables that a launcher must be told to pass on to ranks on other nodes.

MPICH's, Intel's and Slurm's pass on their whole environment. Open MPI's passes on what `-x` names, or the parameter
`mca_base_env_list`; both at once are an error in Open MPI 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

LIST: Final = "OMPI_MCA_mca_base_env_list"
_LAUNCHERS: Final = ("mpiexec", "mpirun", "orterun", "prterun")
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
    launcher = Path(command[0]).name.partition(".")[0] if command else ""
    given = LIST in environment or any(word in ("-x", "--x") or "mca_base_env_list" in word for word in command)
    if launcher not in _LAUNCHERS or given:
        return {}
    names = [name for name in environment if name == "LD_PRELOAD" or name.startswith(_PREFIX)]
    return {LIST: ";".join(names)}
