"""Hatchling build hook: compiles the shim into the package, and installs files for operators under share/."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# hatchling loads this file by path, so build.py cannot be imported by name.
_SPEC = importlib.util.spec_from_file_location("barograph_shim_build", Path(__file__).with_name("build.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
shim = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(shim)

LIBRARY = "agent/barograph_agent/libbarograph.so"


class ShimBuildHook(BuildHookInterface[Any]):
    """Builds libbarograph.so and tags the wheel for this platform and any Python 3."""

    def dependencies(self) -> list[str]:
        """ziglang, as a compiler, if the machine has none."""
        return [] if shim.system_compiler([]) else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in place, where an editable install, which copies nothing, also finds the library."""
        shim.build(Path(self.root) / LIBRARY)
        # Ignored by git, but part of the wheel.
        build_data["artifacts"] += [LIBRARY, str(Path(LIBRARY).with_name(shim.READER))]
        build_data["shared_scripts"][str(Path(LIBRARY).with_name(shim.COMMAND))] = shim.COMMAND
        build_data["pure_python"] = False
        build_data["shared_data"].update(self._shared())
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def _shared(self) -> dict[str, str]:
        """Folders other than Python packages: those in deploy/, the alert rules, and the output of `make dist`."""
        root = Path(self.root)
        folders = [folder for folder in root.glob("deploy/*/") if not (folder / "__init__.py").exists()]
        shared = {str(folder): f"share/barograph/{folder.name}" for folder in [*folders, root / "alerts/rules"]}
        made = root / "build/share"
        return shared | {str(folder): f"share/{folder.name}" for folder in made.glob("*/")}
